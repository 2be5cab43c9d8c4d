"""The bounds of the problems that come with coevo: no solution beats them, and they are near enough to be of use."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coevo_heuristics
from coevo.sandbox import Bar, load_problem
from coevo.sandbox.racing import Track, mean
from coevo_heuristics.one_tree import one_tree_bound, spanning_tree

PROBLEMS = Path(coevo_heuristics.__file__).parent / "problems"
ALMOST = 1e-9


def module(name: str) -> Any:
    return cast(Any, load_problem(PROBLEMS / name / "evaluate.py"))


TSP, ANTS, CVRP, KP = module("tsp_construct"), module("tsp_aco"), module("cvrp_aco"), module("kp_construct")
ONLINE, BINS = module("bpp_online"), module("bpp_aco")
LOADED = {
    "tsp_construct": TSP, "tsp_aco": ANTS, "cvrp_aco": CVRP, "kp_construct": KP, "bpp_online": ONLINE, "bpp_aco": BINS,
}  # fmt: skip
# Share of the best known value of train that the bound is away from it, at most.
NEAR = {"tsp_construct": 0.015, "tsp_aco": 0.012, "cvrp_aco": 0.18, "kp_construct": 0.002, "bpp_aco": 0.001}


def table(name: str) -> dict[str, Any]:
    return tomllib.loads((PROBLEMS / name / "problem.toml").read_text("utf-8"))


def test_the_problems_with_more_than_one_instance_have_a_bound() -> None:
    names = {file.parent.name for file in PROBLEMS.glob("*/problem.toml")}

    assert {name for name in names if hasattr(module(name), "bound")} == set(LOADED)
    assert names - set(LOADED) == {"asp_construct"}
    assert len(module("asp_construct").instances("train")) == 1, (
        "where one instance is all, there is nothing to race for"
    )


@pytest.mark.parametrize("name", LOADED)
def test_no_reference_of_a_split_is_better_than_the_mean_of_its_bounds(name: str) -> None:
    known, spec = LOADED[name], table(name)
    sign = 1.0 if spec["direction"] == "minimize" else -1.0
    names = {"train": "train", "validation": spec["splits"]["validation"]}
    for split, actual in names.items():
        bound = mean([known.bound(instance) for instance in known.instances(actual)])
        values = [r["value"] for r in spec["references"] if r["split"] in (split, actual)]
        assert all(sign * value >= sign * bound for value in values), (split, bound, values)


@pytest.mark.parametrize("name", NEAR)
def test_a_bound_is_near_the_best_that_is_known(name: str) -> None:
    known, spec = LOADED[name], table(name)
    values = [r["value"] for r in spec["references"] if r["split"] == "train"]
    best = min(values) if spec["direction"] == "minimize" else max(values)
    if name == "bpp_aco":
        best = min(v for v in values if v > 0)
    bound = mean([known.bound(instance) for instance in known.instances("train")])

    assert abs(bound - best) <= NEAR[name] * best


@pytest.mark.parametrize(
    ("name", "rules"),
    [("kp_construct", "paper"), ("kp_construct", "paper_test"), ("bpp_online", "paper"), ("cvrp_aco", "paper")],
)
def test_the_bound_is_the_same_with_the_rules_of_the_paper(name: str, rules: str) -> None:
    """They cost more or forbid more, and permit nothing that the default forbids."""
    known = LOADED[name]
    ours, theirs = known.instances("train"), known.instances("train", rules=rules)

    assert [known.bound(i) for i in theirs] == [known.bound(i) for i in ours]


def points(most: int) -> st.SearchStrategy[Any]:
    """Nodes in the unit square, some on one another or on a line."""
    coordinate = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    return st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=most).map(np.array)


@given(points(7))
@settings(max_examples=30, deadline=None)
def test_no_tour_is_shorter_than_its_bound(nodes: Any) -> None:
    for known, instance in ((TSP, TSP.Instance(nodes)), (ANTS, ANTS.Instance(nodes, 1, 0))):
        tours = ([0, *rest] for rest in itertools.permutations(range(1, len(nodes))))
        shortest = min(known.objective(tour, instance) for tour in tours)

        assert known.bound(instance) <= shortest + ALMOST


@given(points(7))
def test_a_spanning_tree_is_the_cheapest(nodes: Any) -> None:
    size = len(nodes)
    distances = TSP.Instance(nodes).distances()
    joined, paid = spanning_tree(distances)
    assert [distances[node, to] for node, to in enumerate(joined, 1)] == paid.tolist()
    if size > 5:
        return
    trees = itertools.product(*(range(size) for _ in range(size - 1)))
    cheapest = min(sum(distances[n, to] for n, to in enumerate(tree, 1)) for tree in trees if reaches(tree))
    assert paid.sum() == pytest.approx(cheapest)


def reaches(tree: tuple[int, ...]) -> bool:
    """Whether every node comes to node 0, one edge after the other."""
    for start in range(1, len(tree) + 1):
        node = start
        for _ in range(len(tree) + 1):
            node = tree[node - 1] if node else 0
        if node:
            return False
    return True


def test_more_steps_make_the_bound_of_a_tour_tighter() -> None:
    distances = TSP.instances("train", 1)[0].distances()

    bounds = [one_tree_bound(distances, steps) for steps in (1, 5, 25)]

    assert bounds == sorted(set(bounds))


@given(points(6), st.lists(st.integers(1, 50), min_size=5, max_size=5))
@settings(max_examples=30, deadline=None)
def test_no_plan_is_shorter_than_its_bound(nodes: Any, loads: list[int]) -> None:
    if len(nodes) < 2:
        return
    demands = np.array([0, *loads[: len(nodes) - 1]])
    instance = CVRP.Instance(nodes, demands, 1, 0, 0.0)
    cheapest = min(best_plan(order, instance) for order in itertools.permutations(range(1, len(nodes))))

    assert CVRP.bound(instance) <= cheapest + ALMOST


def best_plan(order: tuple[int, ...], instance: Any) -> float:
    """The cheapest way to cut an order of customers into routes that a vehicle can carry."""
    found: list[float] = []
    for cuts in itertools.product((False, True), repeat=len(order) - 1):
        plan = [0, order[0]]
        for cut, customer in zip(cuts, order[1:], strict=True):
            plan += [0, customer] if cut else [customer]
        try:
            found.append(CVRP.objective([*plan, 0], instance))
        except ValueError:
            continue
    return min(found, default=float("inf"))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=9),
    st.floats(0, 4),
    st.sampled_from(["fitting", "paper", "paper_test"]),
)
@settings(max_examples=40, deadline=None)
def test_no_packing_is_worth_more_than_its_bound(items: list[tuple[float, float]], capacity: float, rules: str) -> None:
    instance = KP.Instance(np.array(items), rules)
    instance.capacity = capacity
    most = 0.0
    for chosen in itertools.product((False, True), repeat=len(items)):
        try:
            most = max(most, KP.objective([i for i, taken in enumerate(chosen) if taken], instance))
        except ValueError:
            continue

    assert KP.bound(instance) >= most - ALMOST


@given(st.lists(st.integers(1, 150), min_size=1, max_size=7))
@settings(max_examples=40, deadline=None)
def test_no_packing_has_fewer_bins_than_its_bound(sizes: list[int]) -> None:
    instance = BINS.Instance(np.array(sizes), 1, 0)
    fewest = len(sizes)
    for packing in itertools.product(*(range(i + 1) for i in range(len(sizes)))):
        try:
            fewest = min(fewest, BINS.objective(list(packing), instance))
        except ValueError:
            continue

    assert max(1, -(-sum(sizes) // 150)) <= BINS.bound(instance) <= fewest


@given(st.lists(st.integers(1, 100), min_size=1, max_size=30), st.floats(1, 40))
def test_no_online_packing_has_fewer_bins_than_its_bound(sizes: list[int], mean_of_the_set: float) -> None:
    instance = ONLINE.Instance(np.array(sizes), 100, mean_of_the_set, "one_empty")
    first_fit: list[int] = []
    loads: list[int] = []
    for size in sizes:
        place = next((i for i, load in enumerate(loads) if load + size <= 100), len(loads))
        if place == len(loads):
            loads.append(0)
        loads[place] += size
        first_fit.append(place)

    assert ONLINE.bound(instance) <= ONLINE.objective(first_fit, instance) + ALMOST


def test_an_optimal_packing_is_as_good_as_its_bound_and_not_stopped() -> None:
    """The instances of which the bound is exact: a slack keeps rounding from telling the two apart."""
    instances = [KP.Instance(np.array([[1.0, 0.1], [2.0, 0.3], [3.0, 0.7]]), "fitting") for _ in range(3)]
    values = [KP.objective([0, 1, 2], instance) for instance in instances]
    track = Track(KP, cast(Any, instances))

    assert not track.outraced(values, Bar(mean(values), False))
    assert track.outraced(values, Bar(mean(values) + 1e-5, False))
