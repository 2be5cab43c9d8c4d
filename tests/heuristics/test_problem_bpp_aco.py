"""bpp_aco: published values, both rules, the colony's rule, and what becomes of bad answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from coevo.sandbox import Evaluator

from .problem_kit import PROBLEMS, evaluator_of, mean, module, references, seed, source

NAME = "bpp_aco"
PROBLEM = module(NAME)
BASELINE = references(NAME, "size")
# Standard deviation of the mean over the 5 search instances between seeds of the draws, 20 seeds.
SPREAD = {"colony": (214.97, 0.363), "paper": (202.99, 0.137)}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with evaluator_of(NAME) as found:
        yield found


def by_size(sizes: np.ndarray, capacity: int) -> np.ndarray:
    return np.tile(sizes / sizes.max(), (len(sizes), 1))


def first_fit_decreasing(instance: Any) -> list[int]:
    loads: list[int] = []
    bins = [0] * len(instance.sizes)
    for item in sorted(range(len(bins)), key=lambda item: -instance.sizes[item]):
        size = int(instance.sizes[item])
        place = next((place for place, load in enumerate(loads) if load + size <= 150), len(loads))
        if place == len(loads):
            loads.append(0)
        loads[place] += size
        bins[item] = place
    return bins


@pytest.mark.parametrize("split", references(NAME, "first_fit_decreasing"))
def test_first_fit_decreasing_has_its_value_on_every_split(split: str) -> None:
    instances = PROBLEM.instances(split)
    values = [PROBLEM.objective(first_fit_decreasing(instance), instance) for instance in instances]

    assert np.mean(values) == pytest.approx(references(NAME, "first_fit_decreasing")[split], abs=1e-5)
    if split == "validation1000":
        assert np.mean(values[:32]) == 404.46875


def test_first_fit_decreasing_has_its_published_value_where_the_shipped_file_is_the_generators() -> None:
    ours = references(NAME, "first_fit_decreasing")
    published = {"train": 202.4, "validation120": 49.281, "validation500": 203.469}

    assert {split: round(ours[split], 3) for split in published} == published


@pytest.mark.parametrize("split", ["validation120", "test120"])
def test_the_seed_has_its_value_on_other_splits(split: str) -> None:
    assert round(mean(PROBLEM, by_size, PROBLEM.instances(split)), 5) == BASELINE[split]


@pytest.mark.parametrize("rules", SPREAD)
def test_other_draws_give_a_value_within_the_stated_spread(rules: str) -> None:
    value = mean(PROBLEM, by_size, PROBLEM.instances("train", rules=rules), 10**6)

    center, deviation = SPREAD[rules]
    assert abs(value - center) < 4 * deviation


def test_the_papers_rules_are_an_option_of_the_task() -> None:
    options = {"rules": "paper", "count": 2}
    with Evaluator(PROBLEMS / NAME, "train", "heuristics", workers=1, options=options) as evaluator:
        found = evaluator.evaluate(seed(NAME, "function"))

    assert found.objective == mean(PROBLEM, by_size, PROBLEM.instances("train", 2, rules="paper"))
    assert found.objective < mean(PROBLEM, by_size, PROBLEM.instances("train", 2)) - 5


def naive(sizes: np.ndarray, weights: np.ndarray, draws: np.ndarray) -> list[int]:
    """A greedy packing by the words of the definition."""
    rest, bins, inside, number = list(range(len(sizes))), [0] * len(sizes), list[int](), 0
    for draw in draws:
        room = 150 - sum(sizes[item] for item in inside)
        fitting = [item for item in rest if sizes[item] <= room]
        if inside and fitting:
            item = max(fitting, key=lambda item: (weights[inside, item].mean(), -item))
        else:
            number += bool(inside)
            inside = []
            item = sorted(rest, key=lambda item: (sizes[item], item))[int(draw * len(rest))]
        inside.append(item)
        rest.remove(item)
        bins[item] = number
    return bins


def test_a_greedy_packing_is_the_one_that_the_definition_gives() -> None:
    (instance,) = PROBLEM.instances("validation120", 1, rules="paper")
    weights = np.random.RandomState(1).random_sample((120, 120))
    draws = np.random.RandomState(instance.seed).random_sample((200, 120))
    weights = np.maximum(weights / weights.max(), 1e-6)
    found = [naive(instance.sizes, weights, row) for row in draws[:40]]
    fewest = min(len(set(bins)) for bins in found)
    ants, sizes = 40, instance.sizes[instance.order]
    packed, bins = np.empty((ants, 120), np.int64), np.empty((ants, 120), np.int64)
    fills = np.empty(ants)
    ordered = np.ascontiguousarray(weights[np.ix_(instance.order, instance.order)])
    PROBLEM._pack(sizes, instance.order, 150, ordered, draws[:ants], True, packed, bins, fills)

    for ant, expected in enumerate(found):
        built = np.empty(120, np.int64)
        built[instance.order[packed[ant]]] = bins[ant]
        assert built.tolist() == expected
        loads = np.bincount(built, weights=instance.sizes)
        assert fills[ant] == pytest.approx(((loads / 150) ** 2).mean())
    assert PROBLEM.objective(PROBLEM.solve(lambda *_: weights, instance), instance) <= fewest


def test_the_next_item_is_drawn_in_proportion_to_the_mean_weight_of_the_bin() -> None:
    ants = 20_000
    sizes, names = np.array([10, 20, 30, 149]), np.arange(4)
    weights = np.array([[0.0, 0.2, 0.6, 0.9]] * 4)
    draws = np.random.RandomState(0).random_sample((ants, 4))
    draws[:, 0] = 0.0
    packed, bins, fills = np.empty((ants, 4), np.int64), np.empty((ants, 4), np.int64), np.empty(ants)
    PROBLEM._pack(sizes, names, 150, weights, draws, False, packed, bins, fills)

    assert (packed[:, 0] == 0).all()
    # Item 3 does not fit beside item 0. Five standard errors.
    shares = np.bincount(packed[:, 1], minlength=4) / ants
    assert shares == pytest.approx([0, 1 / 4, 3 / 4, 0], abs=5 * 0.5 / np.sqrt(ants))
    assert bins[:, -1].tolist() == [1] * ants


def test_an_ant_leaves_its_amount_on_all_pairs_of_a_bin() -> None:
    pheromone = np.zeros((3, 3))
    PROBLEM._deposit(
        pheromone, np.array([[2, 0, 1], [0, 1, 2]]), np.array([[0, 0, 1], [0, 1, 1]]), np.array([1.0, 4.0])
    )

    assert pheromone.tolist() == [[5.0, 0.0, 1.0], [0.0, 5.0, 4.0], [1.0, 4.0, 5.0]]


def test_the_sizes_are_those_of_the_published_generator() -> None:
    for name, published, number in (("train", "train", 5), ("validation", "val", 64), ("test", "test", 64)):
        random = np.random.RandomState(len(published))
        for length in (500,) if name == "train" else (120, 500, 1000):
            found = np.array([instance.sizes for instance in PROBLEM.instances(f"{name}{length}")])
            assert np.array_equal(found, random.randint(20, 101, (number, length)))


def test_more_iterations_do_not_need_more_bins() -> None:
    few, many = (mean(PROBLEM, by_size, PROBLEM.instances("train", 2, count)) for count in (2, 20))

    assert many < few


def test_a_candidate_that_spoils_its_argument_spoils_nothing_else(evaluator: Evaluator) -> None:
    text = "def heuristics(d, c):\n    h = np.tile(d / d.max(), (len(d), 1))\n    d[:] = 0\n    return h"

    assert evaluator.evaluate(source(text)).objective == BASELINE["train"]


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (None, "no list"),
        ([], "no list with the bin of each of the 120"),
        (list(range(119)), "no list with the bin of each of the 120"),
        ([*range(119), 1.0], "no bin of 0 to 119"),
        ([*range(119), True], "no bin of 0 to 119"),
        ([*range(119), None], "no bin of 0 to 119"),
        ([-1, *range(119)], "no bin of 0 to 119"),
        ([0] * 120, "bin 0 holds"),
        ("the heuristic is a float", "is a float"),
    ],
)
def test_the_objective_refuses_what_is_no_packing(claim: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PROBLEM.objective(claim, PROBLEM.instances("validation120", 1)[0])


@pytest.mark.parametrize(
    ("split", "options", "said"),
    [
        ("test51", {}, r"no split 'test51'.*search.*validation120.*test1000"),
        ("train", {"rules": "aco"}, "no rules 'aco'; there are colony, paper"),
        ("train", {"iterations": 0}, "iterations = 0"),
        ("train", {"iterations": 3, "rules": "paper"}, "iterations = 3"),
    ],
)
def test_a_wrong_split_or_option_is_refused(split: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PROBLEM.instances(split, **options)
