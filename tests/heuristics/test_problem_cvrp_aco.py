"""cvrp_aco: published values, both rules, the colony's rule, and what becomes of bad answers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from coevo.sandbox import Evaluator

from .problem_kit import PROBLEMS, evaluator_of, mean, module, references, seed, source

NAME = "cvrp_aco"
PROBLEM = module(NAME)
BASELINE = references(NAME, "inverse_distance")
# Standard deviation of the mean over the 10 search instances between seeds of the colony, 20 seeds.
TRAIN_MEAN, TRAIN_SPREAD = 13.374, 0.167


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with evaluator_of(NAME) as found:
        yield found


def inverse(distances: np.ndarray, *_: object) -> np.ndarray:
    return 1.0 / distances


def single_trips(size: int) -> list[int]:
    return [0, *(node for customer in range(1, size) for node in (customer, 0))]


@pytest.mark.parametrize("split", ["validation20", "validation50"])
def test_the_seed_has_its_value_on_other_splits(split: str) -> None:
    assert round(mean(PROBLEM, inverse, PROBLEM.instances(split)), 5) == BASELINE[split]


@pytest.mark.parametrize("shift", [10**6, 2 * 10**6, 3 * 10**6])
def test_other_draws_give_a_value_within_the_stated_spread(shift: int) -> None:
    value = mean(PROBLEM, inverse, PROBLEM.instances("train"), shift)

    assert abs(value - TRAIN_MEAN) < 4 * TRAIN_SPREAD
    assert round(value, 5) != BASELINE["train"]


def test_the_literatures_plain_colony_has_about_its_published_length() -> None:
    instances = PROBLEM.instances("test50", 24)
    values = [PROBLEM.objective(PROBLEM.solve(inverse, instance), instance) for instance in instances]

    # Two samples, ours of 24 here and the shipped file of 64: three standard errors of the difference, about 0.6.
    assert abs(np.mean(values) - 11.355) < 3 * np.sqrt(1 / 24 + 1 / 64) * np.std(values, ddof=1)


def test_the_instances_are_those_of_one_generator_in_the_published_order() -> None:
    random = np.random.RandomState(1234)
    for name, number, size in [
        ("train", 10, 50),
        *[("validation", 64, size) for size in (20, 50, 100)],
        *[("test", 64, size) for size in (20, 50, 100)],
    ]:
        found = PROBLEM.instances(f"{name}{size}")
        assert len(found) == number
        for instance in found:
            assert instance.coordinates[1:].tobytes() == random.rand(size, 2).tobytes()
            assert instance.demands[1:].tolist() == random.randint(1, 10, size).tolist()
            assert (instance.coordinates[0].tolist(), instance.demands[0]) == ([0.5, 0.5], 0)


def test_the_papers_rules_count_a_step_at_the_depot_and_the_default_does_not() -> None:
    plain, paper = (PROBLEM.instances("train", 1, rules=name)[0] for name in ("plain", "paper"))
    plan = single_trips(plain.size)
    length = 2 * math.fsum(math.dist(plain.coordinates[0], node) for node in plain.coordinates[1:])

    assert PROBLEM.objective(plan, plain) == pytest.approx(length)
    assert PROBLEM.objective([*plan, 0, 0, 0], plain) == pytest.approx(length)
    assert PROBLEM.objective(plan, paper) == pytest.approx(length)
    assert PROBLEM.objective([*plan, 0, 0, 0], paper) == pytest.approx(length + 3)


def test_in_one_iteration_the_papers_best_plan_is_the_cheapest_with_its_wait_for_the_slowest() -> None:
    plain, paper = (PROBLEM.instances("train", 1, 1, name)[0] for name in ("plain", "paper"))
    best, waited = PROBLEM.solve(inverse, plain), PROBLEM.solve(inverse, paper)
    heuristic = 1.0 / plain.distances
    # The colony's own draws for its first iteration.
    longest = 2 * plain.size - 1
    draws = np.random.RandomState(plain.seed).random_sample((30, longest))
    plans, steps, lengths = np.empty((30, longest), np.int64), np.empty(30, np.int64), np.empty(30)
    heuristic /= heuristic.max(axis=1, keepdims=True)
    PROBLEM._walk(plain.distances, plain.demands, 50, heuristic, draws, plans, steps, lengths)

    assert PROBLEM.objective(best, plain) == pytest.approx(lengths.min())
    assert len(waited) == steps.max()
    assert PROBLEM.objective(waited, paper) == pytest.approx((lengths + steps.max() - steps).min())


def test_the_papers_rules_are_an_option_of_the_task() -> None:
    options = {"rules": "paper", "count": 2}
    with Evaluator(PROBLEMS / NAME, "train", "heuristics", workers=1, options=options) as evaluator:
        found = evaluator.evaluate(seed(NAME, "function"))
    instances = PROBLEM.instances("train", 2, rules="paper")

    assert found.objective == round(mean(PROBLEM, inverse, instances), 5)
    assert found.objective > mean(PROBLEM, inverse, PROBLEM.instances("train", 2)) + 1
    with pytest.raises(ValueError, match=r"no rules 'papers'; there are plain, paper"):
        PROBLEM.instances("train", rules="papers")


def test_ants_go_to_what_fits_and_leave_the_depot_at_once() -> None:
    ants, size = 20_000, 4
    demands = np.array([0, 30, 30, 15])
    weights = np.array([[9.0, 1.0, 2.0, 5.0]] * size)
    draws = np.random.RandomState(0).random_sample((ants, 2 * size - 1))
    plans, steps, lengths = np.empty(draws.shape, np.int64), np.empty(ants, np.int64), np.empty(ants)
    PROBLEM._walk(np.ones((size, size)), demands, 50, weights, draws, plans, steps, lengths)

    # Five standard errors.
    near = 5 * 0.5 / np.sqrt(ants)
    first = np.bincount(plans[:, 1], minlength=size) / ants
    assert first == pytest.approx([0, 1 / 8, 2 / 8, 5 / 8], abs=near)
    # After customer 1 only 3 fits, or the depot.
    after = plans[plans[:, 1] == 1]
    second = np.bincount(after[:, 2], minlength=size) / len(after)
    assert second == pytest.approx([9 / 14, 0, 0, 5 / 14], abs=near * np.sqrt(ants / len(after)))
    assert (lengths == steps - 1).all()


def test_an_ant_leaves_one_over_its_cost_in_the_direction_of_its_edges() -> None:
    pheromone = np.zeros((3, 3))
    plans = np.array([[0, 1, 0, 2, 0], [0, 2, 1, 0, 7]])
    PROBLEM._deposit(pheromone, plans, np.array([5, 4]), np.array([2.0, 4.0]))

    assert pheromone.tolist() == [[0.0, 0.5, 0.75], [0.75, 0.0, 0.0], [0.5, 0.25, 0.0]]


def test_a_candidate_that_spoils_its_arguments_spoils_nothing_else(evaluator: Evaluator) -> None:
    text = "def heuristics(d, c, m, k):\n    h = 1 / d\n    d[:] = 0\n    c[:] = 0\n    m[:] = 0\n    return h"

    assert evaluator.evaluate(source(text)).objective == BASELINE["train"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: None, "no list"),
        (lambda plan: [], "once"),
        (lambda plan: plan[:-2], "once"),
        (lambda plan: [*plan, 1, 0], "once"),
        (lambda plan: plan[1:], "begin and end"),
        (lambda plan: plan[:-1], "begin and end"),
        (lambda plan: [0, *(node for node in plan if node), 0], "carries"),
        (lambda plan: [*plan, 51, 0], "no node"),
        (lambda plan: [*plan, -1, 0], "no node"),
        (lambda plan: [*plan, 0.0], "no node"),
        (lambda plan: [*plan, False], "no node"),
    ],
)
def test_the_objective_refuses_what_is_no_plan(change: object, said: str) -> None:
    instance = PROBLEM.instances("train", 1)[0]
    assert callable(change)
    with pytest.raises(ValueError, match=said):
        PROBLEM.objective(change(single_trips(instance.size)), instance)


def test_an_unknown_split_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"no split 'test51'.*search.*validation20.*test100"):
        PROBLEM.instances("test51")
