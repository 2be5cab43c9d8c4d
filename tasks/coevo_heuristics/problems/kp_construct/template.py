"""A constructive heuristic for the 0/1 knapsack problem: `select_next_item` packs item by item."""

import numpy as np


# coevo: hole
def select_next_item(remaining_capacity: float, weights: np.ndarray, values: np.ndarray) -> int:
    """Return the index of the item to pack next: here the one with most value for its weight that fits."""
    density = np.where(weights <= remaining_capacity, values / weights, -1.0)
    return int(np.argmax(density))


# coevo: end
