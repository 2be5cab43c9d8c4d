"""A heuristic for online bin packing: the item goes to the bin with the largest score."""

import numpy as np


def score(used: np.ndarray, room: np.ndarray, rest: np.ndarray, gap: np.ndarray) -> np.ndarray:
    """Score the bins that the item fits in, (k,). One number stands for all of them."""
    return used  # coevo: hole


def priority(item: float, bins: np.ndarray) -> np.ndarray:
    """Return one priority per bin; `bins` is their free space, and one of them is empty."""
    room = bins - item
    return np.broadcast_to(np.asarray(score(bins.max() - bins, room, room % item, np.abs(room - item))), bins.shape)
