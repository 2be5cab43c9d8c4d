"""The evaluator of bpp_aco once more, written plainly: a second opinion for tests, a yardstick for speed.

Numbers are drawn and added in the order of evaluate.py, so that the ants of both fill the same bins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

_CAPACITY, _ANTS, _DECAY = 150, 20, 0.95
_SMALLEST, _LARGEST = 1e-6, 1e6


def evaluate(function: Callable[..., Any], instance: Any) -> float:
    """Fewest bins of the colony.

    Raises:
        FloatingPointError: a value of the heuristic is not finite.
        ValueError: the instance has the rules of the paper, which know no colony.
    """
    if not instance.iterations:
        raise ValueError("plain.py knows the rules 'colony' alone, not 'paper'")
    sizes = instance.sizes.tolist()
    heuristic = np.asarray(function(instance.sizes.copy(), _CAPACITY), float).tolist()
    if not all(math.isfinite(value) for row in heuristic for value in row):
        raise FloatingPointError("a heuristic value is not finite")
    heuristic = [[min(max(value, _SMALLEST), _LARGEST) for value in row] for row in heuristic]
    largest = max(map(max, heuristic))
    heuristic = [[max(value / largest, _SMALLEST) for value in row] for row in heuristic]
    pheromone = [[1.0] * len(sizes) for _ in sizes]
    random = np.random.RandomState(instance.seed)
    fewest = len(sizes)
    for _ in range(instance.iterations):
        draws = random.random_sample((_ANTS, len(sizes))).tolist()
        weights = [[p * h for p, h in zip(*rows, strict=True)] for rows in zip(pheromone, heuristic, strict=True)]
        packings = [_pack(weights, sizes, row) for row in draws]
        fewest = min(fewest, *map(len, packings))
        pheromone = [[p * _DECAY for p in row] for row in pheromone]
        for bins in packings:
            amount = _fill(bins, sizes) / _ANTS
            for items in bins:
                for first in items:
                    for second in items:
                        pheromone[first][second] += amount
    return float(fewest)


def _pack(weights: list[list[float]], sizes: list[int], draws: list[float]) -> list[list[int]]:
    # Draws mean places among the items by their sizes, as in evaluate.py.
    left = sorted(range(len(sizes)), key=sizes.__getitem__)
    bins: list[list[int]] = []
    room = 0
    for draw in draws:
        fitting = [item for item in left if sizes[item] <= room]
        if not fitting:
            item = left[int(draw * len(left))]
            bins.append([])
            room = _CAPACITY
        else:
            item = fitting[_drawn(weights, bins[-1], fitting, draw)]
        bins[-1].append(item)
        room -= sizes[item]
        left.remove(item)
    return bins


def _drawn(weights: list[list[float]], inside: list[int], fitting: list[int], draw: float) -> int:
    share = 1.0 / len(inside)
    total = 0.0
    reached: list[float] = []
    for item in fitting:
        value = 0.0
        for other in inside:
            value += weights[other][item]
        total += value * share + 1e-5
        reached.append(total)
    place = 0
    while reached[place] <= draw * total and place < len(fitting) - 1:
        place += 1
    return place


def _fill(bins: list[list[int]], sizes: list[int]) -> float:
    """Mean over the bins of the squared share that is filled."""
    squares = 0.0
    for items in bins:
        share = sum(sizes[item] for item in items) / _CAPACITY
        squares += share * share
    return squares / len(bins)
