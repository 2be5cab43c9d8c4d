"""A heuristic for an ant colony on the travelling salesman problem: `heuristics` says how promising edges are."""

import numpy as np


# coevo: hole
def heuristics(distance_matrix: np.ndarray) -> np.ndarray:
    """Return how promising it is to go from i to j, (n, n): here one over the distance."""
    return 1.0 / distance_matrix


# coevo: end
