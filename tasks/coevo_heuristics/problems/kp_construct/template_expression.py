"""A constructive heuristic for the 0/1 knapsack problem: pack the item with the largest score."""

import numpy as np


def score(value: np.ndarray, weight: np.ndarray, spare: np.ndarray, free: float) -> np.ndarray:
    """Score the items that fit, (k,); the largest is packed next. One number stands for all of them."""
    return value / weight  # coevo: hole


def select_next_item(remaining_capacity: float, weights: np.ndarray, values: np.ndarray) -> int:
    """Return the index of the item to pack next, one that fits."""
    fitting = np.flatnonzero(weights <= remaining_capacity)
    weight, free = weights[fitting], np.float64(remaining_capacity)
    scores = np.asarray(score(values[fitting], weight, np.minimum(free - weight, weight.min()), free))
    scores = np.broadcast_to(scores, weight.shape)
    if not np.isfinite(scores).all():
        raise FloatingPointError("a score is not finite")
    return int(fitting[np.argmax(scores)])
