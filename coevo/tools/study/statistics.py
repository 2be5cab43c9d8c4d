"""Mean, spread and a bootstrap interval of a few runs' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
DRAWS = 20_000
"""Resamples; with ten seeds the ends of an interval repeat to about a hundredth of its width."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a few numbers say of the mean of all that could have been.

    Attributes:
        count: how many numbers.
        mean: None of none.
        spread: sample standard deviation; None of fewer than two.
        interval: of the mean, see `bootstrap`; None of fewer than two.
    """

    count: int = 0
    mean: float | None = None
    spread: float | None = None
    interval: tuple[float, float] | None = None


def estimate(values: Sequence[float | None]) -> Estimate:
    """Of the numbers among `values`; None is a run that has none."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Estimate(len(known), known[0] if known else None)
    return Estimate(len(known), fmean(known), stdev(known), bootstrap(known))


def bootstrap(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean (Efron and Tibshirani, An Introduction to the Bootstrap, 13.3).

    The resamples are the same for every call with as many values, so that equal studies say equal things. Of three
    values or fewer 95 % is their whole range: one value three times in a row is already 1 resample of 27.

    Args:
        values: at least one, finite.
        confidence: between 0 and 1.
    """
    numbers = np.asarray(values, dtype=np.float64)
    tail = (1.0 - confidence) / 2.0
    # Percentiles that are means of resamples, not points between two of them.
    low, high = np.quantile(numbers[_resamples(numbers.size)].mean(axis=1), [tail, 1.0 - tail], method="nearest")
    # Summation may round a mean of equal values beyond them.
    return max(float(low), float(numbers.min())), min(float(high), float(numbers.max()))


@lru_cache(maxsize=8)
def _resamples(size: int) -> NDArray[np.int64]:
    """Which numbers are drawn, (DRAWS, size); a table asks for the same ones hundreds of times."""
    return np.random.default_rng(0).integers(size, size=(DRAWS, size))
