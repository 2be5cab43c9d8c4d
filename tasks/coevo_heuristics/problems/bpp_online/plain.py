"""The evaluator of bpp_online once more, written plainly: a second opinion for tests, a yardstick for speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def evaluate(function: Callable[..., Any], instance: Any) -> float:
    """Bins that `function` takes above the bound, in percent; `ValueError` for the paper's rules."""
    if instance.rules != "one_empty":
        raise ValueError(f"plain.py knows the rules 'one_empty' alone, not {instance.rules!r}")
    rooms: list[float] = []
    for size in instance.sizes.tolist():
        fitting = [place for place, room in enumerate(rooms) if room >= size]
        shown = np.array([*(rooms[place] for place in fitting), float(instance.capacity)])
        chosen = int(np.argmax(function(np.float64(size), shown)))
        if chosen == len(fitting):
            rooms.append(float(instance.capacity) - size)
        else:
            rooms[fitting[chosen]] -= size
    return (len(rooms) / instance.bound - 1.0) * 100.0
