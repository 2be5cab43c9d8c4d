"""A heuristic for an ant colony on bin packing: `heuristics` says how well items go together."""

import numpy as np


# coevo: hole
def heuristics(demand: np.ndarray, capacity: int) -> np.ndarray:
    """Return how well item j goes into a bin with item i, (n, n): here its size, so that large ones come first."""
    return np.tile(demand / demand.max(), (len(demand), 1))


# coevo: end
