"""Bin packing by an ant colony: a heuristic says how well items go together, ants fill bins, fewest bins count.

Instances are the common ones of the literature, bit for bit: sizes 20 to 100, capacity 150, drawn in the order of
`_DRAWS`, each split from a `RandomState` of its own. `validation` and `test` alone mean those with 500 items.

The colony: 20 ants, pheromone 1 at the start. An ant fills one bin after the other. The first item of a bin is any
of the rest; then comes an item that still fits, with a probability proportional to the mean of pheromone times
heuristic value over the items in the bin, plus 1e-5. Then pheromone decays by 0.95 and every ant adds the mean
squared fill of its bins over 20 to all pairs that share a bin. All draws come from a seed of the instance, so equal
heuristics get equal packings.

`rules="paper"` is what the published search measures: no colony but 200 packings without pheromone, each of
which takes the item of the highest value, the first of equal ones, where the colony draws one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

# Split, seed (the length of its usual name: train, val, test), instances, sizes in the order of the draws.
_DRAWS = (("train", 5, 5, (500,)), ("validation", 3, 64, (120, 500, 1000)), ("test", 4, 64, (120, 500, 1000)))
_ALIASES = {"train": "train500", "search": "train500", "validation": "validation500", "test": "test500"}
Rules: TypeAlias = Literal["colony", "paper"]
_RULES = get_args(Rules)
_CAPACITY = 150
_ANTS = 20
_DECAY = 0.95
_ITERATIONS = 15
_SAMPLES = 200
_SMALLEST, _LARGEST = 1e-6, 1e6
_SEED = 1234


class Instance:
    """Items by their sizes, and what the colony on them needs; without `iterations` packings are greedy."""

    def __init__(self, sizes: Ints, iterations: int, seed: int) -> None:
        self.sizes = sizes  # (n,)
        self.iterations = iterations
        self.seed = seed
        self.order: Ints = np.argsort(sizes, kind="stable")


def instances(
    split: str, count: int | None = None, iterations: int | None = None, rules: Rules = "colony"
) -> list[Instance]:
    """The instances of `split`, or the first `count` of them; `iterations` of the colony other than usual."""
    if count is not None and count < 1:
        raise ValueError(f"count = {count!r}; expected 1 or more")
    if rules not in _RULES:
        raise ValueError(f"there are no rules {rules!r}; there are {', '.join(_RULES)}")
    if iterations is not None and (iterations < 1 or rules == "paper"):
        raise ValueError(f"iterations = {iterations!r}: a colony has 1 or more, and the rules of the paper have none")
    wanted = _ALIASES.get(split, split)
    for name, seed, number, lengths in _DRAWS:
        random = np.random.RandomState(seed)
        for length in lengths:
            sizes = random.randint(20, 101, (number, length)).astype(np.int64)
            if f"{name}{length}" == wanted:
                rounds = 0 if rules == "paper" else iterations or _ITERATIONS
                _ready()
                return [Instance(row, rounds, _SEED + 1000 * length + i) for i, row in enumerate(sizes[:count])]
    names = ", ".join([*_ALIASES, *(f"{name}{length}" for name, _, _, sizes in _DRAWS for length in sizes)])
    raise ValueError(f"there is no split {split!r}; there are {names}")


def solve(function: Callable[..., object], instance: Instance) -> list[int] | str:
    """The bin of each item; for an answer that is no heuristic matrix what is wrong, for `objective`."""
    heuristic = _matrix(function(instance.sizes.copy(), _CAPACITY), len(instance.sizes))
    return heuristic if isinstance(heuristic, str) else _colony(heuristic, instance)


def _matrix(answer: object, size: int) -> Floats | str:
    """The (size, size) heuristic, from `_SMALLEST` to 1; or what is wrong with it."""
    found = np.asarray(answer)
    if found.shape != (size, size) or found.dtype.kind not in "biuf":
        kind = f"{type(answer).__name__} of shape {found.shape} and type {found.dtype}"
        return f"the heuristic is a {kind}, not a real matrix of shape ({size}, {size})"
    values: Floats = found.astype(np.float64)
    if not np.isfinite(values).all():
        raise FloatingPointError("a heuristic value is not finite")
    values = np.clip(values, _SMALLEST, _LARGEST)
    return np.maximum(values / values.max(), _SMALLEST)


def _colony(heuristic: Floats, instance: Instance) -> list[int]:
    random = np.random.RandomState(instance.seed)
    size, greedy = len(instance.sizes), instance.iterations == 0
    order = instance.order
    sizes = instance.sizes[order]
    heuristic = np.ascontiguousarray(heuristic[np.ix_(order, order)])
    ants = _SAMPLES if greedy else _ANTS
    pheromone = np.ones_like(heuristic)
    packed, bins, fills = np.empty((ants, size), np.int64), np.empty((ants, size), np.int64), np.empty(ants)
    best, fewest = np.arange(size), size
    for _ in range(max(1, instance.iterations)):
        draws = random.random_sample((ants, size))
        weights = pheromone * heuristic
        _pack(sizes, order, _CAPACITY, weights, draws, greedy, packed, bins, fills)
        ant = int(bins[:, -1].argmin())
        if bins[ant, -1] + 1 < fewest:
            fewest = int(bins[ant, -1]) + 1
            best[order[packed[ant]]] = bins[ant]
        if not greedy:
            pheromone *= _DECAY
            _deposit(pheromone, packed, bins, fills / _ANTS)
    return best.tolist()


def _compiled(function: _Function) -> _Function:
    """`numba.njit`, cached on disk where a place for the cache can be written."""
    njit = cast(Callable[..., Callable[[_Function], _Function]], numba.njit)
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no such place: compile once a process
        return njit(cache=False)(function)


@_compiled
def _drawn(sums: Floats, inside: int, draw: float) -> int:
    """A place in `sums`, which are of `inside` items each, drawn by the mean plus 1e-5; `sums` are spoiled."""
    total, share = 0.0, 1.0 / inside
    for i in range(len(sums)):
        total += sums[i] * share + 1e-5
        sums[i] = total
    return min(int(np.searchsorted(sums, draw * total, side="right")), len(sums) - 1)


@_compiled
def _pack(
    sizes: Ints,
    names: Ints,
    capacity: int,
    weights: Floats,
    draws: Floats,
    greedy: bool,
    packed: Ints,
    bins: Ints,
    fills: Floats,
) -> None:
    """Fill `packed` (ants, n), the items in the order of packing, `bins` (ants, n), the bin of each, and `fills`.

    Args:
        sizes: (n,) of the items, ascending.
        names: (n,) numbers of the items; among equal weights the lowest is taken.
        capacity: of a bin.
        weights: (n, n) how well an item goes to an item in the bin.
        draws: (ants, n) in [0, 1).
        greedy: take the item of the highest weight in place of drawing one.
        packed: written.
        bins: written.
        fills: written; mean over the bins of the squared share that is filled, (ants,).
    """
    size = len(sizes)
    left, sums = np.empty(size, np.int64), np.empty(size)
    for ant in range(len(packed)):
        for i in range(size):
            left[i] = i
        remain, current, first, room, squares = size, 0, 0, capacity, 0.0
        for step in range(size):
            place = int(draws[ant, step] * remain)
            if step > first:
                # Items are sorted, so those that fit come first.
                fit, end = 0, remain
                while fit < end:
                    middle = (fit + end) // 2
                    if sizes[left[middle]] <= room:
                        fit = middle + 1
                    else:
                        end = middle
                if fit == 0:
                    squares += ((capacity - room) / capacity) ** 2
                    current, first, room = current + 1, step, capacity
                else:
                    row = weights[packed[ant, first]]
                    for i in range(fit):
                        sums[i] = row[left[i]]
                    for inside in range(first + 1, step):
                        row = weights[packed[ant, inside]]
                        for i in range(fit):
                            sums[i] += row[left[i]]
                    if greedy:
                        place = 0
                        for i in range(1, fit):
                            better = sums[i] > sums[place]
                            if better or (sums[i] == sums[place] and names[left[i]] < names[left[place]]):
                                place = i
                    else:
                        place = _drawn(sums[:fit], step - first, draws[ant, step])
            item = left[place]
            packed[ant, step], bins[ant, step] = item, current
            room -= sizes[item]
            remain -= 1
            for i in range(place, remain):
                left[i] = left[i + 1]
        squares += ((capacity - room) / capacity) ** 2
        fills[ant] = squares / (current + 1)


@_compiled
def _deposit(pheromone: Floats, packed: Ints, bins: Ints, amounts: Floats) -> None:
    """Add its amount to all pairs of items that an ant put into one bin."""
    size = packed.shape[1]
    for ant in range(len(packed)):
        for i in range(size):
            pheromone[packed[ant, i], packed[ant, i]] += amounts[ant]
            j = i + 1
            while j < size and bins[ant, j] == bins[ant, i]:
                pheromone[packed[ant, i], packed[ant, j]] += amounts[ant]
                pheromone[packed[ant, j], packed[ant, i]] += amounts[ant]
                j += 1


def _ready() -> None:
    """Compile now: what a candidate's process compiles would be lost with it."""
    square, packed, bins, fills = np.ones((2, 2)), np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64), np.ones(1)
    items = np.arange(2)
    _pack(items, items, 3, square, np.zeros((1, 2)), False, packed, bins, fills)
    _deposit(square, packed, bins, fills)


def objective(solution: object, instance: Instance) -> float:
    """Number of bins of a packing in which each item has a bin and no bin more than fits."""
    if isinstance(solution, str):
        raise ValueError(solution[:200])
    if not isinstance(solution, list) or len(cast("list[object]", solution)) != len(instance.sizes):
        raise ValueError(f"the packing is no list with the bin of each of the {len(instance.sizes)} items")
    loads: dict[int, int] = {}
    for item, number in enumerate(cast("list[object]", solution)):
        if type(number) is not int or not 0 <= number < len(instance.sizes):
            raise ValueError(
                f"item {item} is in bin {number!r:.100}, which is no bin of 0 to {len(instance.sizes) - 1}"
            )
        loads[number] = loads.get(number, 0) + int(instance.sizes[item])
        if loads[number] > _CAPACITY:
            raise ValueError(f"bin {number} holds {loads[number]}, more than {_CAPACITY}")
    return float(len(loads))


def bound(instance: Instance) -> float:
    """A number of bins that no packing can do without, L2 of Martello and Toth (1990); for races, in the run alone.

    Of items larger than half a bin no two go together. For each size `small`, of items smaller than that none is
    counted; what is between it and half a bin must go beside large items that leave room for it, or into new bins.
    """
    sizes = instance.sizes
    large = sizes[2 * sizes > _CAPACITY]
    rest = np.sort(sizes[2 * sizes <= _CAPACITY])
    fewest = len(large)
    for small in [0, *np.unique(rest).tolist()]:
        beside = large[large <= _CAPACITY - small]
        over = int(rest[rest >= small].sum() + beside.sum()) - _CAPACITY * len(beside)
        fewest = max(fewest, len(large) + max(0, -(-over // _CAPACITY)))
    return float(fewest)
