from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.sandbox import Evaluator, load_problem

from .conftest import NEAREST, PROBLEM, expression

TSP = cast(Any, load_problem(PROBLEM / "evaluate.py"))
SPECIFICATION = tomllib.loads((PROBLEM / "problem.toml").read_text("utf-8"))
# Measured with this definition of the three arrays on the search set.
MEASURED = {
    "d_current": 7.00437,
    "d_current - 0.5 * d_mean": 6.47196,
    "d_current - d_home": 7.07913,
    "np.sqrt(d_current) * d_mean": 8.60308,
    "d_current - d_mean": 6.44101,
    "d_current - d_home * d_mean": 6.58195,
}


@pytest.mark.parametrize(("text", "value"), MEASURED.items())
def test_an_expression_has_the_value_that_was_measured(text: str, value: float, evaluator: Evaluator) -> None:
    assert evaluator.evaluate(expression(text)).objective == value


@pytest.mark.parametrize("text", [*MEASURED, "d_mean", "np.round(d_mean, 1)", "1.0"])
def test_the_fast_path_gives_the_tours_of_the_module_itself(text: str, evaluator: Evaluator) -> None:
    module = expression(text)
    fast = evaluator.evaluate(module)
    slow = evaluator.evaluate(module.replace('HOLE = "expression"', ""))

    assert fast.status == slow.status == "ok"
    assert fast.per_instance == slow.per_instance


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("d_current / 0", "non_finite"),
        ("np.where(d_current == d_current.min(), np.nan, 0)", "non_finite"),
        ("np.log(d_current - d_home)", "non_finite"),
        ("d_current[1:]", "exception"),
        ("np.outer(d_current, d_mean)", "exception"),
        ("None", "exception"),
        ("'near'", "exception"),
        ("distance", "exception"),
        ("0", "ok"),
    ],
)
def test_scores_must_be_finite_numbers_one_per_node_or_one_for_all(
    text: str, status: str, evaluator: Evaluator
) -> None:
    module = expression(text)

    assert evaluator.evaluate(module).status == status
    assert evaluator.evaluate(module.replace('HOLE = "expression"', "")).status == status


@pytest.mark.parametrize("hole", ["function", "expression"])
def test_the_templates_are_nearest_neighbour_as_they_are(hole: str, evaluator: Evaluator) -> None:
    source = (PROBLEM / SPECIFICATION["holes"][hole]["template"]).read_text("utf-8")

    assert evaluator.evaluate(source).objective == NEAREST


def nearest(split: str, count: int | None = None) -> list[float]:
    module: dict[str, Any] = {}
    exec((PROBLEM / "template.py").read_text("utf-8"), module)
    instances = TSP.instances(split, count)
    return [TSP.objective(TSP.solve(module["select_next_node"], item), item) for item in instances]


NEAREST_ON = {r["split"]: r["value"] for r in SPECIFICATION["references"] if r["name"] == "nearest_neighbour"}
LARGE = ("test100", "test200", "test500", "test1000")


@pytest.mark.parametrize("split", [split for split in NEAREST_ON if split not in LARGE])
def test_nearest_neighbour_has_its_published_length(split: str) -> None:
    values = nearest(split)

    assert round(math.fsum(values) / len(values), 5) == NEAREST_ON[split]


@pytest.mark.parametrize("split", LARGE)
def test_the_first_of_a_large_set_are_near_the_published_mean(split: str) -> None:
    # Sixteen standard errors at the least: a slip in the order of draws is not what this would miss.
    assert np.mean(nearest(split, 8)) == pytest.approx(NEAREST_ON[split], rel=0.05)


def test_the_splits_are_deterministic_and_differ() -> None:
    splits = ["train", "validation20", "validation50", "test20", "test50"]
    first = {split: TSP.instances(split, 1)[0].coordinates.tobytes() for split in splits}

    assert first == {split: TSP.instances(split, 1)[0].coordinates.tobytes() for split in splits}
    assert len(set(first.values())) == len(splits)
    assert TSP.instances("search", 1)[0].coordinates.tobytes() == first["train"]
    assert [len(TSP.instances(split)) for split in splits] == [64, 64, 64, 1000, 1000]


def test_an_unknown_split_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"no split 'test51'.*search.*validation200.*test1000"):
        TSP.instances("test51")


@given(st.permutations(range(1, 20)))
def test_the_objective_of_a_permutation_is_the_length_of_the_closed_tour(order: list[int]) -> None:
    instance = TSP.instances("validation20", 1)[0]
    tour = [0, *order]
    steps = zip(tour, [*order, 0], strict=True)
    length = math.fsum(math.dist(instance.coordinates[a], instance.coordinates[b]) for a, b in steps)

    assert TSP.objective(tour, instance) == pytest.approx(length, rel=1e-12)


@given(st.lists(st.one_of(st.integers(-2, 22), st.floats(), st.booleans(), st.none(), st.text()), max_size=22))
def test_the_objective_refuses_whatever_is_no_tour(claim: list[object]) -> None:
    instance = TSP.instances("validation20", 1)[0]
    if sorted(map(repr, claim)) == sorted(map(repr, range(20))):
        return
    with pytest.raises(ValueError, match=r"step|nodes|starts"):
        TSP.objective(claim, instance)


@pytest.mark.parametrize("claim", [None, 3, "tour", {"0": 1}, True])
def test_the_objective_refuses_what_is_no_list(claim: object) -> None:
    with pytest.raises(ValueError, match="no list"):
        TSP.objective(claim, TSP.instances("train", 1)[0])


def test_a_rotated_tour_is_refused_because_it_does_not_start_at_node_0() -> None:
    with pytest.raises(ValueError, match="starts at node 1"):
        TSP.objective([*range(1, 20), 0], TSP.instances("validation20", 1)[0])


def test_no_example_of_the_prompt_is_better_than_nearest_neighbour(evaluator: Evaluator) -> None:
    for text in SPECIFICATION["holes"]["expression"]["examples"]:
        objective = evaluator.evaluate(expression(text)).objective
        assert objective is not None
        assert objective >= NEAREST


def test_the_marked_hole_of_each_template_occurs_once() -> None:
    function = Path(PROBLEM, "template.py").read_text("utf-8")
    text = Path(PROBLEM, "template_expression.py").read_text("utf-8")

    assert text.count(SPECIFICATION["holes"]["expression"]["replace"]) == 1
    assert function.count("# coevo: hole") == function.count("# coevo: end") == 1


def test_exactly_one_reference_of_the_search_split_is_the_baseline() -> None:
    (baseline,) = (reference for reference in SPECIFICATION["references"] if reference.get("baseline"))

    assert (baseline["split"], baseline["value"]) == ("train", NEAREST)


def test_by_the_papers_rules_the_fifty_nearest_are_shown_the_nearest_first() -> None:
    (instance,) = TSP.instances("validation100", 1, rules="paper")
    distances, asked = instance.distances(), list[int]()

    def last_shown(current: int, _home: int, unvisited: Any, _distances: Any) -> int:
        left = distances[current, unvisited].tolist()
        assert left == sorted(left)
        asked.append(len(left))
        return int(unvisited[-1])

    tour = TSP.solve(last_shown, instance)
    assert asked == [min(50, count) for count in range(99, 1, -1)]
    assert sorted(tour) == list(range(100))


@pytest.mark.parametrize("text", ["d_current", "d_current - d_mean", "d_current - d_home", "1.0"])
def test_by_the_papers_rules_too_the_fast_path_gives_the_tours_of_the_module(text: str) -> None:
    instances = TSP.instances("validation100", 3, rules="paper")
    space: dict[str, Any] = {}
    exec(compile(expression(text), "template", "exec"), space)
    fast = [TSP.solve(space["select_next_node"], instance) for instance in instances]
    space["HOLE"] = ""
    assert fast == [TSP.solve(space["select_next_node"], instance) for instance in instances]


def test_of_fifty_nodes_the_papers_rules_change_the_order_only() -> None:
    def nearest(current: int, _home: int, unvisited: Any, distances: Any) -> int:
        return int(unvisited[np.argmin(distances[current, unvisited])])

    for ours, papers in zip(TSP.instances("train", 3), TSP.instances("train", 3, rules="paper"), strict=True):
        assert TSP.solve(nearest, ours) == TSP.solve(nearest, papers)


def test_unknown_rules_are_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match="no rules 'papers'; there are all, paper"):
        TSP.instances("train", rules="papers")
