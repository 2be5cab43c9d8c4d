"""How an objective is written: the one rule of live view, `show`, report, studies and `compare`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

DECIMALS = 5
"""What an evaluator rounds an objective to, and published values have."""


def written(value: float) -> str:
    """`value` with all its decimals up to `DECIMALS`, and with six significant digits at least.

    So two objectives that an evaluator tells apart are never written alike, whatever stands before the point.
    """
    if not math.isfinite(value):
        return str(value)
    digits = len(str(abs(int(value)))) + DECIMALS
    # -0.0 is 0.0.
    return f"{value + 0.0:.{digits if abs(value) < 1e15 else DECIMALS + 1}g}"


def mean(values: Sequence[float]) -> float:
    """The mean of finite numbers, also where their sum is no float.

    Raises:
        StatisticsError: there are none.
    """
    try:
        return fmean(values)
    except OverflowError:
        largest = max(map(abs, values))
        return fmean([value / largest for value in values]) * largest
