"""A heuristic for an ant colony on vehicle routing: ants prefer edges of high weight."""

import numpy as np


def weight(distance: np.ndarray, home_from: np.ndarray, home_to: np.ndarray, demand_to: np.ndarray) -> np.ndarray:
    """Weigh the edges, (n, n) or what broadcasts to it; ants prefer the highest."""
    return 1 / distance  # coevo: hole


def heuristics(distance_matrix: np.ndarray, coordinates: np.ndarray, demands: np.ndarray, capacity: int) -> np.ndarray:
    """Return how promising it is to go from i to j, (n, n); node 0 is the depot."""
    home = np.sqrt(((coordinates - coordinates[0]) ** 2).sum(axis=1))
    weights = weight(distance_matrix.copy(), home[:, None], home[None, :], demands[None, :] / capacity)
    return np.broadcast_to(np.asarray(weights), distance_matrix.shape)
