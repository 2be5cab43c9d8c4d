"""0/1 knapsack, constructive: a heuristic chooses the next item until none of those that are left fits.

Instances are the common ones of the literature, bit for bit: weight and value uniform between 0 and 1, drawn in
the order of `_DRAWS` from one `RandomState(3333)`. `validation` and `test` alone mean those with 100 items, as
many as the search set has.

Three sets of rules. `fitting` is the default, the others are those of the paper's evaluators:

- `fitting`: the heuristic sees the items that still fit. An item that does not fit never will again, so every
  packing that the paper's rules allow can be reached; but a heuristic cannot fail by choosing such an item.
- `paper`: it sees all items that are left, called with the names of the arguments; an item that does not fit
  makes the whole answer invalid. A fraction is cut off.
- `paper_test`: as `paper`, called by position, and an item that does not fit, or None, ends the packing there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Literal, SupportsIndex, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DRAWS = (
    ("train", 64, 100),
    *(("validation", 64, size) for size in (50, 100, 200)),
    *(("test", 1000, size) for size in (50, 100, 200, 500)),
)
_ALIASES = {"train": "train100", "search": "train100", "validation": "validation100", "test": "test100"}
Rules: TypeAlias = Literal["fitting", "paper", "paper_test"]
_RULES = get_args(Rules)
# The paper's tolerance for an item that fits, and ours for the whole: a sum depends on the order of its terms.
_ITEM_SLACK, _TOTAL_SLACK = 1e-12, 1e-9


class Instance:
    """Items and the capacity of the knapsack."""

    def __init__(self, items: Floats, rules: str) -> None:
        self.weights = items[:, 0].copy()  # (n,)
        self.values = items[:, 1].copy()  # (n,)
        self.size = len(items)
        self.capacity = 12.5 if self.size == 50 else 25.0
        self.rules = rules


def instances(split: str, count: int | None = None, rules: Rules = "fitting") -> list[Instance]:
    """The instances of `split`, or the first `count` of them."""
    if count is not None and count < 1:
        raise ValueError(f"count = {count!r}; expected 1 or more")
    if rules not in _RULES:
        raise ValueError(f"there are no rules {rules!r}; there are {', '.join(_RULES)}")
    wanted = _ALIASES.get(split, split)
    random = np.random.RandomState(3333)
    for name, number, size in _DRAWS:
        drawn = random.rand(number, size, 2)
        if f"{name}{size}" == wanted:
            return [Instance(items, rules) for items in drawn[:count]]
    names = ", ".join([*_ALIASES, *(f"{name}{size}" for name, _, size in _DRAWS)])
    raise ValueError(f"there is no split {split!r}; there are {names}")


def solve(function: Callable[..., object], instance: Instance) -> list[object]:
    """The packed items in order; a choice that is none is the last of them, for `objective` to refuse."""
    paper = instance.rules != "fitting"
    remaining = instance.capacity
    left = np.arange(instance.size)
    packed: list[object] = []
    while True:
        weights = instance.weights.take(left)
        if not paper:
            fits = weights <= remaining
            left, weights = left[fits], weights[fits]
        if not left.size or (paper and weights.min() > remaining + _ITEM_SLACK):
            return packed
        values = instance.values.take(left)
        if instance.rules == "paper":
            answer = function(remaining_capacity=remaining, weights=weights, values=values)
        else:
            answer = function(remaining, weights, values)
        if answer is None and instance.rules == "paper_test":
            return packed
        place = _place(answer, paper)
        if place is None or not 0 <= place < left.size:
            return [*packed, f"choice {answer!r:.80} of {left.size} items"]
        item = int(left[place])
        weight = float(instance.weights[item])
        if instance.rules == "paper_test" and weight > remaining + _ITEM_SLACK:
            return packed
        packed.append(item)
        if weight > remaining + _ITEM_SLACK:
            return packed  # too heavy, which `objective` sees
        remaining -= weight
        left = np.concatenate((left[:place], left[place + 1 :]))


def _place(answer: object, cut_fractions: bool) -> int | None:
    """The index that was chosen, None where the answer is no index."""
    if isinstance(answer, np.ndarray) and answer.size == 1:
        answer = cast("NDArray[Any]", answer).item()
    if isinstance(answer, (float, np.floating)):
        if not math.isfinite(cast(float, answer)):
            raise FloatingPointError(f"the chosen index is {answer}")
        return int(cast(float, answer)) if cut_fractions else None
    if isinstance(answer, (bool, np.bool_)):
        return None
    try:
        return operator.index(cast(SupportsIndex, answer))
    except TypeError:
        return None


def objective(solution: object, instance: Instance) -> float:
    """Value of the items in `solution`, which must be different ones and not too heavy together."""
    if not isinstance(solution, list):
        raise ValueError("the packing is no list")
    packed = cast("list[object]", solution)
    items: list[int] = []
    seen: set[int] = set()
    for step, item in enumerate(packed):
        if type(item) is not int or not 0 <= item < instance.size:
            raise ValueError(f"step {step} packs {item!r:.120}, which is no item of 0 to {instance.size - 1}")
        if item in seen:
            raise ValueError(f"step {step} packs item {item} again")
        seen.add(item)
        items.append(item)
    chosen = np.array(items, dtype=np.intp)
    weight = math.fsum(instance.weights[chosen].tolist())
    if weight > instance.capacity + _TOTAL_SLACK:
        raise ValueError(f"the items weigh {weight:g} together, more than the capacity of {instance.capacity:g}")
    return math.fsum(instance.values[chosen].tolist())


def bound(instance: Instance) -> float:
    """A value that no packing exceeds: that of the best one if items could be cut; for races, in the run alone."""
    room = instance.capacity + _TOTAL_SLACK
    total = 0.0
    for item in np.argsort(-instance.values / np.maximum(instance.weights, np.finfo(np.float64).tiny)):
        weight, value = float(instance.weights[item]), float(instance.values[item])
        if weight > room:
            return total + value * room / weight
        total, room = total + value, room - weight
    return total
