"""A heuristic for an ant colony on bin packing: ants prefer pairs of items of high weight."""

import numpy as np


def weight(size_in: np.ndarray, size_new: np.ndarray) -> np.ndarray:
    """Weigh pairs of items, (n, n) or what broadcasts to it; ants prefer the highest."""
    return size_new  # coevo: hole


def heuristics(demand: np.ndarray, capacity: int) -> np.ndarray:
    """Return how well item j goes into a bin with item i, (n, n)."""
    sizes = demand / capacity
    weights = weight(sizes[:, None], sizes[None, :])
    return np.broadcast_to(np.asarray(weights), (len(sizes), len(sizes)))
