"""The evaluator of cvrp_aco once more, written plainly: a second opinion for tests, a yardstick for speed.

Numbers are drawn and added in the order of evaluate.py, so that the ants of both drive the same routes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_CAPACITY, _ANTS, _DECAY = 50, 30, 0.9
_SMALLEST, _FAINTEST = 1e-9, 1e-10


def evaluate(function: Callable[..., Any], instance: Any) -> float:
    """Cost of the best plan of the colony; `FloatingPointError` for a value that is not finite."""
    nodes, demands = instance.coordinates, instance.demands.tolist()
    size = len(nodes)
    distances = np.linalg.norm(nodes[:, None] - nodes[None, :], axis=2)
    np.fill_diagonal(distances, 1.0)
    answer = function(distances.copy(), nodes.copy(), instance.demands.copy(), _CAPACITY)
    heuristic: list[list[float]] = []
    for row in np.asarray(answer, float).tolist():
        if not all(map(math.isfinite, row)):
            raise FloatingPointError("a heuristic value is not finite")
        kept = [max(value, _SMALLEST) for value in row]
        largest = max(kept)
        heuristic.append([value / largest for value in kept])
    lengths = distances.tolist()
    pheromone = [[1.0] * size for _ in range(size)]
    random = np.random.RandomState(instance.seed)
    cheapest = math.inf
    for _ in range(instance.iterations):
        draws = random.random_sample((_ANTS, 2 * size - 1)).tolist()
        weights = [[p * h for p, h in zip(*rows, strict=True)] for rows in zip(pheromone, heuristic, strict=True)]
        plans = [_drive(weights, demands, row) for row in draws]
        slowest = max(map(len, plans))
        costs = [_length(lengths, plan) + instance.waiting * (slowest - len(plan)) for plan in plans]
        cheapest = min(cheapest, *costs)
        pheromone = [[p * _DECAY for p in row] for row in pheromone]
        for plan, cost in zip(plans, costs, strict=True):
            for step in range(1, len(plan)):
                pheromone[plan[step - 1]][plan[step]] += 1.0 / cost
        pheromone = [[max(p, _FAINTEST) for p in row] for row in pheromone]
    return cheapest


def _drive(weights: list[list[float]], demands: list[int], draws: list[float]) -> list[int]:
    left = list(range(1, len(weights)))
    plan, room = [0], _CAPACITY
    while left or plan[-1] != 0:
        row = weights[plan[-1]]
        # Places in `left` of the customers that may come next; -1 is the depot.
        places = [-1] if plan[-1] != 0 else []
        places += [place for place, node in enumerate(left) if demands[node] <= room]
        total = 0.0
        reached: list[float] = []
        for place in places:
            total += row[0] if place < 0 else row[left[place]]
            reached.append(total)
        aim = draws[len(plan)] * total
        choice = 0
        while reached[choice] <= aim and choice < len(places) - 1:
            choice += 1
        place = places[choice]
        if place < 0:
            plan.append(0)
            room = _CAPACITY
        else:
            plan.append(left[place])
            room -= demands[left[place]]
            # The last one takes the free place, as in evaluate.py.
            left[place] = left[-1]
            left.pop()
    return plan


def _length(lengths: list[list[float]], plan: list[int]) -> float:
    total = 0.0
    for step in range(1, len(plan)):
        total += lengths[plan[step - 1]][plan[step]]
    return total
