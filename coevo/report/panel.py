"""What a small plot holds, before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Curve: TypeAlias = Sequence[tuple[float, float]]

LARGEST = 1e100
"""A value beyond it is left out like one that is not finite: an axis cannot hold it."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One small plot.

    Attributes:
        curves: by arm (a method, an operator, a quantity) one sequence of (x, y) per seed; values that are not
            finite are left out.
        lines: horizontal reference lines by name.
        percent: y is a share, shown as per cent.
        steps: y holds until the next x, as a best so far does.
        wide: a logarithmic axis where all values are positive and differ by more than 50 times.
        span: least height of the y axis, so that noise does not look like a mountain.
    """

    title: str
    x_label: str
    y_label: str
    curves: Mapping[str, Sequence[Curve]]
    lines: Mapping[str, float] = field(default_factory=dict[str, float])
    percent: bool = False
    steps: bool = False
    wide: bool = False
    span: float = 0.0


def is_shown(value: float) -> bool:
    """Whether a plot can hold a value."""
    return math.isfinite(value) and abs(value) < LARGEST


def shown(curve: Curve) -> list[tuple[float, float]]:
    """The points of a curve that a plot can hold, in order of x."""
    return sorted(((float(x), float(y)) for x, y in curve if is_shown(x) and is_shown(y)), key=lambda point: point[0])


def share(value: float) -> str:
    """A share as per cent, as exactly as a tick needs it."""
    return f"{100.0 * value:.3g} %"


def mean_curve(seeds: Sequence[Curve], steps: bool = False) -> list[tuple[float, float]]:
    """The mean of several seeds over the stretch of x that all of them cover.

    A seed without points is left out; of one seed it is the seed itself.

    Args:
        seeds: their points.
        steps: between its points a seed is what it was at the last one; else it is linear.
    """
    clean = [curve for curve in map(shown, seeds) if curve]
    if len(clean) < 2:
        return clean[0] if clean else []
    first, last = max(curve[0][0] for curve in clean), min(curve[-1][0] for curve in clean)
    at = np.array(sorted({x for curve in clean for x, _ in curve if first <= x <= last}), dtype=np.float64)
    if not at.size:
        return []
    every = [_sampled(curve, at, steps) for curve in clean]
    return list(zip(at.tolist(), np.mean(every, axis=0).tolist(), strict=True))


def _sampled(curve: Curve, at: NDArray[np.float64], steps: bool) -> NDArray[np.float64]:
    xs, ys = np.array([x for x, _ in curve]), np.array([y for _, y in curve])
    if steps:
        return ys[np.searchsorted(xs, at, side="right") - 1]
    return np.asarray(np.interp(at, xs, ys), dtype=np.float64)
