"""tsp_aco: published values, the colony's rule, and what becomes of bad answers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from coevo.sandbox import Evaluator

from .problem_kit import evaluator_of, mean, module, references, source

NAME = "tsp_aco"
PROBLEM = module(NAME)
BASELINE = references(NAME, "inverse_distance")
# Standard deviation of the mean over the 5 search instances between seeds of the colony, 20 seeds.
TRAIN_MEAN, TRAIN_SPREAD = 6.548, 0.081


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    with evaluator_of(NAME) as found:
        yield found


def inverse(distances: np.ndarray) -> np.ndarray:
    return 1.0 / distances


def sparse(distances: np.ndarray) -> np.ndarray:
    """The literature's plain colony: only a tenth of the nodes, the nearest, are worth going to."""
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    limit = np.sort(others, axis=1)[:, len(others) // 10 - 1, None]
    return np.where(others <= limit, 1.0 / others, 1e-10)


@pytest.mark.parametrize("split", ["validation20", "validation50", "test20"])
def test_the_seed_has_its_value_on_other_splits(split: str) -> None:
    assert round(mean(PROBLEM, inverse, PROBLEM.instances(split)), 5) == BASELINE[split]


@pytest.mark.parametrize("shift", [10**6, 2 * 10**6, 3 * 10**6])
def test_other_draws_give_a_value_within_the_stated_spread(shift: int) -> None:
    value = mean(PROBLEM, inverse, PROBLEM.instances("train"), shift)

    assert abs(value - TRAIN_MEAN) < 4 * TRAIN_SPREAD
    assert round(value, 5) != BASELINE["train"]


def test_the_literatures_plain_colony_has_about_its_published_length() -> None:
    instances = PROBLEM.instances("test50")
    values = [PROBLEM.objective(PROBLEM.solve(sparse, instance), instance) for instance in instances]
    published = 5.992

    assert round(float(np.mean(values)), 5) == references(NAME, "sparse_inverse_distance")["test50"]
    # The shipped file is another sample of 64, so three standard errors of a difference of means, about 0.15;
    # draws of the colony add a standard deviation of 0.016 to it.
    assert abs(np.mean(values) - published) < 3 * np.sqrt(2 / 64) * np.std(values, ddof=1)


def test_nearest_neighbour_has_its_published_length_on_the_search_instances() -> None:
    lengths = []
    for instance in PROBLEM.instances("train"):
        tour, unvisited = [0], set(range(1, instance.size))
        while unvisited:
            tour.append(min(unvisited, key=lambda node: instance.distances[tour[-1], node]))
            unvisited.remove(tour[-1])
        lengths.append(PROBLEM.objective(tour, instance))

    assert round(sum(lengths) / len(lengths), 5) == references(NAME, "nearest_neighbour")["train"] == 6.99892


def test_the_coordinates_are_those_of_one_generator_in_the_published_order() -> None:
    random = np.random.RandomState(1234)
    for name, number, size in [
        ("train", 5, 50),
        *[("validation", 64, size) for size in (20, 50, 100)],
        *[("test", 64, size) for size in (20, 50, 100)],
    ]:
        drawn = random.rand(number, size, 2)
        found = PROBLEM.instances(f"{name}{size}")
        assert len(found) == number
        assert np.array([instance.coordinates for instance in found]).tobytes() == drawn.tobytes()


def test_the_next_node_is_drawn_in_proportion_to_the_weights() -> None:
    ants = 20_000
    weights = np.array([[9.0, 1.0, 2.0, 5.0]] * 4)
    draws = np.random.RandomState(0).random_sample((ants, 4))
    draws[:, 0] = 0.0
    tours, lengths = np.empty((ants, 4), np.int64), np.empty(ants)
    PROBLEM._walk(np.ones((4, 4)), weights, draws, tours, lengths)

    assert (np.sort(tours, axis=1) == np.arange(4)).all()
    assert (tours[:, 0] == 0).all()
    assert (lengths == 4.0).all()
    # Five standard errors.
    shares = np.bincount(tours[:, 1], minlength=4) / ants
    assert shares == pytest.approx([0, 1 / 8, 2 / 8, 5 / 8], abs=5 * 0.5 / np.sqrt(ants))


def test_every_ant_leaves_one_over_its_length_on_both_directions_of_its_edges() -> None:
    pheromone = np.zeros((4, 4))
    PROBLEM._deposit(pheromone, np.array([[0, 1, 2, 3], [0, 2, 1, 3]]), np.array([2.0, 4.0]))

    assert np.array_equal(pheromone, pheromone.T)
    assert pheromone[0].tolist() == [0.0, 0.5, 0.25, 0.75]
    assert pheromone[1].tolist() == [0.5, 0.0, 0.75, 0.25]


def test_more_iterations_do_not_make_the_best_tour_longer() -> None:
    few, many = (mean(PROBLEM, inverse, PROBLEM.instances("train", iterations=count)) for count in (10, 40))

    assert many < few


def test_equal_heuristics_get_equal_tours_whatever_the_candidate_draws(evaluator: Evaluator) -> None:
    plain = evaluator.evaluate(source("def heuristics(d): return 1 / d"))
    drawn = evaluator.evaluate(source("def heuristics(d):\n    np.random.rand(7)\n    return 3 / d"))

    assert plain.objective == drawn.objective == BASELINE["train"]


def test_a_candidate_that_spoils_its_argument_spoils_nothing_else(evaluator: Evaluator) -> None:
    found = evaluator.evaluate(source("def heuristics(d):\n    h = 1 / d\n    d[:] = 0\n    return h"))

    assert found.objective == BASELINE["train"]


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (None, "no list"),
        ({"tour": []}, "no list"),
        ([], "once"),
        (list(range(49)), "once"),
        ([*range(49), 48], "once"),
        ([*range(49), 50], "once"),
        ([*range(49), 49.0], "once"),
        ([*range(49), True], "once"),
        ([*range(49), None], "once"),
        ("the heuristic is a float", "is a float"),
    ],
)
def test_the_objective_refuses_what_is_no_tour(claim: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PROBLEM.objective(claim, PROBLEM.instances("train", 1)[0])


def test_an_unknown_split_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(ValueError, match=r"no split 'test51'.*search.*validation20.*test100"):
        PROBLEM.instances("test51")
