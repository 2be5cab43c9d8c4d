"""A heuristic for online bin packing: `priority` says how much each bin that has room deserves the item."""

import numpy as np


# coevo: hole
def priority(item: float, bins: np.ndarray) -> np.ndarray:
    """Return one priority per bin; the item goes to the largest: here the bin that it fits best."""
    return item - bins


# coevo: end
