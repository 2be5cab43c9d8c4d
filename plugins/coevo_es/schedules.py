"""Schedules as pure functions of progress in [0, 1] (Agentic ESOpt; design section 4).

With T planned adapting batches, batch t has progress t/T: the first gets the start value, and the last,
t = T − 1, is still short of the end value, so a cosine to 0 wastes no batch on pure noise.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

Schedule: TypeAlias = Literal["constant", "linear", "cosine"]


def scheduled(kind: Schedule, start: float, end: float, progress: float, warmup: float = 0.0) -> float:
    """The value at `progress`.

    Args:
        kind: `constant` (always `start`), `linear`, or `cosine`: end + (start − end)(1 + cos πp)/2.
        start: value at progress 0 and during the warm-up.
        end: value at progress 1.
        progress: used share of the run; clamped to [0, 1].
        warmup: share of the run that holds `start`; the rest is the schedule's whole range.

    Raises:
        ValueError: an unknown kind, or a warm-up outside [0, 1).
    """
    if not 0.0 <= warmup < 1.0:
        raise ValueError(f"warmup must be in [0, 1), got {warmup}")
    used = min(max(progress, 0.0), 1.0)
    used = max(0.0, (used - warmup) / (1.0 - warmup))
    if kind == "constant":
        return start
    if kind == "linear":
        return start + (end - start) * used
    if kind == "cosine":
        return end + (start - end) * (1.0 + math.cos(math.pi * used)) / 2.0
    raise ValueError(f"unknown schedule {kind!r}; expected constant, linear or cosine")
