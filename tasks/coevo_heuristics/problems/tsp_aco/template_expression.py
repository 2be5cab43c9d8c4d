"""A heuristic for an ant colony on the travelling salesman problem: ants prefer edges of high weight."""

import numpy as np


def weight(distance: np.ndarray, d_near: np.ndarray, d_mean: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Weigh the edges, (n, n) or what broadcasts to it; ants prefer the highest."""
    return 1 / distance  # coevo: hole


def heuristics(distance_matrix: np.ndarray) -> np.ndarray:
    """Return how promising it is to go from i to j, (n, n)."""
    others = distance_matrix.copy()
    np.fill_diagonal(others, np.inf)
    d_near = others.min(axis=1, keepdims=True)
    d_mean = (distance_matrix.sum(axis=1, keepdims=True) - 1.0) / (len(others) - 1)
    rank = 1.0 + others.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    weights = weight(distance_matrix.copy(), d_near, d_mean, rank)
    return np.broadcast_to(np.asarray(weights), distance_matrix.shape)
