"""Bin packing, online: items come one by one, and a heuristic gives each open bin a priority.

Instances are the common ones of the literature, bit for bit: sizes are 45 times a Weibull number of shape 3, at
most 100, rounded, drawn in the order of `_DRAWS` from one `RandomState(1234)`. The objective is the number of bins
above L1, the sum of the sizes over the capacity, rounded up, in percent of L1; as in the literature, of the mean
L1 of all instances of a set, so that the mean over the instances is the published figure.

A set is named like `test5k_100`: the kind, the number of items, the capacity. `train` and `search`, `validation`
and `test` alone are all sets of their kind together.

Two sets of rules:

- `one_empty`, the default: the heuristic sees the open bins that the item fits in, and one empty bin, the last.
- `paper`: it sees as many empty bins as there are items in the instance, less those in use, and priorities need
  not be finite (the first NaN wins, then the first of the largest). For a priority that looks at each bin alone
  both rules give the same packing; but one that uses the number of bins, or their mean, learns how many items the
  instance has, and each step costs thousands of equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

Sizes = NDArray[np.int64]

# Search and validation pack one draw into bins of both capacities, test draws for each.
_DRAWS = (
    ("train5k", 1, 5000, (100, 500)),
    ("train1k", 1, 1000, (100, 500)),
    ("validation5k", 5, 5000, (100, 500)),
    ("validation1k", 5, 1000, (100, 500)),
    ("test1k", 5, 1000, (100,)),
    ("test5k", 5, 5000, (100,)),
    ("test10k", 5, 10000, (100,)),
    ("test1k", 5, 1000, (500,)),
    ("test5k", 5, 5000, (500,)),
    ("test10k", 5, 10000, (500,)),
)
_KINDS = {"train": "train", "search": "train", "validation": "validation", "test": "test"}
Rules: TypeAlias = Literal["one_empty", "paper"]
_RULES = get_args(Rules)


class Instance:
    """Sizes in the order in which the items come, and the capacity of a bin."""

    def __init__(self, sizes: Sizes, capacity: int, bound: float, rules: str) -> None:
        self.sizes = sizes  # (n,)
        self.capacity = capacity
        self.bound = bound  # mean L1 of the instance's set
        self.rules = rules


def instances(split: str, count: int | None = None, rules: Rules = "one_empty") -> list[Instance]:
    """The instances of `split`, or the first `count` of each set in it."""
    if count is not None and count < 1:
        raise ValueError(f"count = {count!r}; expected 1 or more")
    if rules not in _RULES:
        raise ValueError(f"there are no rules {rules!r}; there are {', '.join(_RULES)}")
    sets = dict(_sets())
    chosen = [name for name in sets if name == split or (split in _KINDS and name.startswith(_KINDS[split]))]
    if not chosen:
        raise ValueError(f"there is no split {split!r}; there are {', '.join([*_KINDS, *sets])}")
    found: list[Instance] = []
    for name in chosen:
        drawn, capacity = sets[name]
        bound = float(np.mean([_l1(sizes, capacity) for sizes in drawn]))
        found += [Instance(sizes, capacity, bound, rules) for sizes in drawn[:count]]
    return found


def _sets() -> Iterator[tuple[str, tuple[list[Sizes], int]]]:
    random = np.random.RandomState(1234)
    for name, number, items, capacities in _DRAWS:
        drawn = [np.round(np.minimum(random.weibull(3, items) * 45, 100)).astype(np.int64) for _ in range(number)]
        for capacity in capacities:
            yield f"{name}_{capacity}", (drawn, capacity)


def _l1(sizes: Sizes, capacity: int) -> int:
    return -(-int(sizes.sum()) // capacity)


def solve(function: Callable[..., object], instance: Instance) -> list[object]:
    """The bin of each item; what is no list of priorities ends it, for `objective` to refuse."""
    packing: list[object] = []
    packing.extend(_by_priority(function, instance))
    return packing


def _by_priority(function: Callable[..., object], instance: Instance) -> Iterator[object]:
    paper = instance.rules == "paper"
    bins = np.full(len(instance.sizes), instance.capacity, dtype=np.int64 if paper else np.float64)
    shown = len(bins) if paper else 1  # the bins in use and one
    for size in instance.sizes.astype(np.float64):
        fitting = np.flatnonzero(bins[:shown] >= size)
        answer = function(size, bins.take(fitting))
        priorities = np.asarray(answer)
        if not paper:
            if priorities.dtype.kind not in "fiub" or priorities.shape != fitting.shape:
                yield f"{answer!r:.60} instead of {fitting.size} priorities"
                return
            if not np.isfinite(priorities).all():
                raise FloatingPointError("a priority is not finite")
        place = int(fitting[priorities.argmax()])
        bins[place] -= size
        if not paper and place == shown - 1:
            shown += 1
        yield place


def objective(solution: object, instance: Instance) -> float:
    """Bins in use above the bound, in percent of it; each item must have a bin and no bin hold too much."""
    if not isinstance(solution, list):
        raise ValueError("the packing is no list")
    packing = cast("list[Any]", solution)
    items = len(instance.sizes)
    for step, place in enumerate(packing[: items + 1]):
        if type(place) is not int or not 0 <= place < items:
            raise ValueError(f"item {step} goes to {place!r:.120}, which is no bin of 0 to {items - 1}")
    if len(packing) != items:
        raise ValueError(f"{len(packing)} of {items} items have a bin")
    loads = np.bincount(np.array(packing, dtype=np.intp), weights=instance.sizes)  # (bins,)
    if loads.max() > instance.capacity:
        fullest = int(loads.argmax())
        raise ValueError(f"bin {fullest} holds {loads[fullest]:g}, more than its capacity of {instance.capacity}")
    used = int(np.count_nonzero(loads))
    return (used / instance.bound - 1.0) * 100.0


def bound(instance: Instance) -> float:
    """What a packing into L1 bins has, since none can do with fewer; for races, in the run alone."""
    return (_l1(instance.sizes, instance.capacity) / instance.bound - 1.0) * 100.0
