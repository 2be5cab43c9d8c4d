"""Fitness shaping: from the members' credits to what multiplies their noise (design section 4).

All functions take `credits`, float64 of shape (members,), finite, higher is better, and return the same
shape. Equal credits give all zeros: no difference, no step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Shaping: TypeAlias = Literal["zscore", "centered_rank", "max_seeking", "none"]
EPSILON = 1e-8


def zscore(credits: Floats) -> Floats:
    """(r − mean) / (std + 1e-8), population standard deviation (ddof 0)."""
    centred = credits - credits.mean()
    return centred / (credits.std() + EPSILON)


def average_ranks(credits: Floats) -> Floats:
    """Ranks from 0 with ties averaged: equal credits get equal ranks, whatever their order."""
    _, inverse, counts = np.unique(credits, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2.0)[inverse]


def centered_rank(credits: Floats) -> Floats:
    """Average ranks centred on 0 and scaled to unit standard deviation."""
    ranks = average_ranks(credits)
    return zscore(ranks)


def max_seeking(credits: Floats) -> Floats:
    """Entropic weights that seek the best member rather than the mean.

    Softmax of beta·z with beta such that KL(weights ‖ uniform) = ln 2 (or as near as ties allow; the
    temperature of TTT-Discover, arXiv 2601.16175), then centred and scaled to unit standard deviation.
    """
    z = zscore(credits)
    count = len(z)

    def weights(beta: float) -> Floats:
        raw = np.exp(beta * (z - z.max()))
        return raw / raw.sum()

    def divergence(beta: float) -> float:
        w = weights(beta)
        return float(np.sum(w * np.log(np.maximum(w, 1e-300) * count)))

    low, high = 0.0, 1.0
    while divergence(high) < np.log(2.0) and high < 1e3:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if divergence(middle) < np.log(2.0) else (low, middle)
    return zscore(weights(high))


def unshaped(credits: Floats) -> Floats:
    """The credits less their mean, in their own unit."""
    return credits - credits.mean()


_SHAPINGS: dict[str, Callable[[Floats], Floats]] = {
    "zscore": zscore,
    "centered_rank": centered_rank,
    "max_seeking": max_seeking,
    "none": unshaped,
}


def shape(kind: Shaping, credits: Floats) -> Floats:
    """Shape `credits` (members,) by name.

    Raises:
        ValueError: an unknown name, or a credit that is not finite.
    """
    if kind not in _SHAPINGS:
        raise ValueError(f"unknown shaping {kind!r}; expected one of {', '.join(_SHAPINGS)}")
    if not np.isfinite(credits).all():
        raise ValueError("credits must be finite; a failure is a status, not a number")
    if credits.size == 0 or np.ptp(credits) == 0.0:
        return np.zeros_like(credits)
    return _SHAPINGS[kind](credits)
