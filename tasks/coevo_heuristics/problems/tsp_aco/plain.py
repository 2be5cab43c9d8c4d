"""The evaluator of tsp_aco once more, written plainly: a second opinion for tests, a yardstick for speed.

Numbers are drawn and added in the order of evaluate.py, so that the ants of both walk the same tours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_ANTS, _DECAY, _SMALLEST = 30, 0.9, 1e-9


def evaluate(function: Callable[..., Any], instance: Any) -> float:
    """Length of the best tour of the colony; `FloatingPointError` for a value that is not finite."""
    nodes = instance.coordinates
    size = len(nodes)
    distances = np.linalg.norm(nodes[:, None] - nodes[None, :], axis=2)
    np.fill_diagonal(distances, 1.0)
    heuristic: list[list[float]] = []
    for row in np.asarray(function(distances.copy()), float).tolist():
        if not all(map(math.isfinite, row)):
            raise FloatingPointError("a heuristic value is not finite")
        kept = [max(value, _SMALLEST) for value in row]
        largest = max(kept)
        heuristic.append([value / largest for value in kept])
    lengths = distances.tolist()
    pheromone = [[1.0] * size for _ in range(size)]
    random = np.random.RandomState(instance.seed)
    shortest = math.inf
    for _ in range(instance.iterations):
        draws = random.random_sample((_ANTS, size)).tolist()
        weights = [[p * h for p, h in zip(*rows, strict=True)] for rows in zip(pheromone, heuristic, strict=True)]
        tours = [_walk(weights, row) for row in draws]
        costs = [_length(lengths, tour) for tour in tours]
        shortest = min(shortest, *costs)
        pheromone = [[p * _DECAY for p in row] for row in pheromone]
        for tour, cost in zip(tours, costs, strict=True):
            before = tour[-1]
            for node in tour:
                pheromone[before][node] += 1.0 / cost
                pheromone[node][before] += 1.0 / cost
                before = node
    return shortest


def _walk(weights: list[list[float]], draws: list[float]) -> list[int]:
    left = list(range(len(weights)))
    tour: list[int] = []
    for step, draw in enumerate(draws):
        if step == 0:
            place = int(draw * len(left))
        else:
            row = weights[tour[-1]]
            total = 0.0
            for node in left:
                total += row[node]
            aim, reached, place = draw * total, row[left[0]], 0
            while reached <= aim and place < len(left) - 1:
                place += 1
                reached += row[left[place]]
        tour.append(left[place])
        # The last one takes the free place, as in evaluate.py.
        left[place] = left[-1]
        left.pop()
    return tour


def _length(lengths: list[list[float]], tour: list[int]) -> float:
    total = 0.0
    for step in range(1, len(tour)):
        total += lengths[tour[step - 1]][tour[step]]
    return total + lengths[tour[-1]][tour[0]]
