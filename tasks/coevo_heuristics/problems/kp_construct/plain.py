"""The evaluator of kp_construct once more, written plainly: a second opinion for tests, a yardstick for speed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def evaluate(function: Callable[..., Any], instance: Any) -> float:
    """Value of the items that `function` packs; `ValueError` for a choice that is none, and for the paper's rules."""
    if instance.rules != "fitting":
        raise ValueError(f"plain.py knows the rules 'fitting' alone, not {instance.rules!r}")
    weights, values = instance.weights.tolist(), instance.values.tolist()
    left = list(range(len(weights)))
    room, packed = instance.capacity, 0.0
    while True:
        left = [item for item in left if weights[item] <= room]
        if not left:
            return packed
        shown = np.array([weights[item] for item in left]), np.array([values[item] for item in left])
        place = int(function(room, *shown))
        if not 0 <= place < len(left):
            raise ValueError(f"choice {place} of {len(left)} items")
        item = left.pop(place)
        room -= weights[item]
        packed += values[item]
