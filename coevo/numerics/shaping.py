"""Fitness shaping: from the members' credits to what multiplies their noise (design section 4).

All functions take `credits`, float64 of shape (members,), finite, higher is better, and return the same
shape. Equal credits give all zeros: no difference, no step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Shaping: TypeAlias = Literal["zscore", "centered_rank", "max_seeking", "none"]
EPSILON = 1e-8

HUGE = 1e100

FAILURE = 0.0
"""Bounded credit of an answer that is not valid."""

LOWEST, EQUAL, HIGHEST = 0.3, 0.5, 1.0
"""Bounded credits of a valid answer: of the worst, of one that equals the baseline, of the best."""

WORST_GAIN, BEST_GAIN = -0.5, 0.15
"""Gains over the baseline, as a share of its value, at which credit is `LOWEST` and `HIGHEST`."""


def bounded_credit(return_: float | None, baseline: float) -> float:
    """0 for a failure, 0.3 to 0.5 for an answer worse than the baseline, 0.5 to 1.0 for a better one.

    Linear in the gain between the bounds. The bounds keep one terrible answer from drowning the differences of all
    others; the steeper upper part makes a gain worth more than safety, or weights learn to repeat the baseline.

    Args:
        return_: of the answer, None where it failed.
        baseline: the return to beat, not 0 (gains would have no unit).
    """
    if return_ is None:
        return FAILURE
    gain = (return_ - baseline) / abs(baseline)
    if gain < 0.0:
        return EQUAL - (EQUAL - LOWEST) * min(gain / WORST_GAIN, 1.0)
    return EQUAL + (HIGHEST - EQUAL) * min(gain / BEST_GAIN, 1.0)


def bounded_ranks(returns: Sequence[float | None]) -> list[float]:
    """`bounded_credit` where there is no baseline: average ranks of the valid returns take the gains' place.

    A lone valid return gets the middle.
    """
    valid = np.array([r for r in returns if r is not None], dtype=np.float64)
    if valid.size == 0:
        return [FAILURE] * len(returns)
    shares = average_ranks(valid) / (valid.size - 1) if valid.size > 1 else np.array([0.5])
    scaled = iter((LOWEST + (HIGHEST - LOWEST) * shares).tolist())
    return [FAILURE if r is None else next(scaled) for r in returns]


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
    if credits.size == 0 or np.max(credits) == np.min(credits):
        return np.zeros_like(credits)
    if kind != "none" and (largest := float(np.max(np.abs(credits)))) > HUGE:
        credits = credits / largest  # their squares would have no number; none of these shapings has a unit
    return _SHAPINGS[kind](credits)
