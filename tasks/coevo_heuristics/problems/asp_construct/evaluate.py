"""Symmetric admissible sets, constructive: a priority decides which vectors come into the set first.

An admissible set I(n, w) holds vectors of {0, 1, 2}^n with w entries that are not 0, no two of them at the same
places, such that any three have a coordinate with the values {0, 1, 2}, {0, 0, 1} or {0, 0, 2}. Here the
coordinates come in groups of three and the set is closed under rotating any group, so it is built of *words*: one
symbol of `_SYMBOLS` per group, which stands for all rotations. The greedy construction takes the word of highest
priority, the first in lexicographic order of equal ones, drops what may not stand beside it, and goes on.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.int8]
Codes = NDArray[np.uint64]

_SYMBOLS = ((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 2, 1), (1, 1, 1), (2, 2, 2))
_COUNT = len(_SYMBOLS)
_WEIGHTS = tuple(sum(entry != 0 for entry in symbol) for symbol in _SYMBOLS)
_ROTATIONS = tuple(3 if len(set(symbol)) > 1 else 1 for symbol in _SYMBOLS)
_SIZES = {"15-10": (15, 10), "12-7": (12, 7), "21-15": (21, 15), "24-17": (24, 17)}
_ALIASES = {"train": "15-10", "search": "15-10", "validation": "12-7", "test": "21-15"}


def _separates(*values: int) -> bool:
    return sorted(values) in ([0, 1, 2], [0, 0, 1], [0, 0, 2])


def _clashes(first: int, second: int, third: int) -> bool:
    """Whether some rotations of three symbols have no coordinate that separates them."""
    turned = [[symbol[i:] + symbol[:i] for i in range(3)] for symbol in (_SYMBOLS[s] for s in (first, second, third))]
    return any(not any(map(_separates, *three)) for three in itertools.product(*turned))


# Groups rotate on their own: three words clash if their symbols do in every group. A word is coded with one bit
# per group and symbol. `_BESIDE[a, b]`: bits of the symbols that do not clash with a and b; `_TWICE[a]`: of those
# that do not clash with a when taken twice. With them one AND tells whether words clash with a pair.
_PAIRS = tuple(itertools.product(range(_COUNT), repeat=2))
_BESIDE = np.zeros((_COUNT, _COUNT), np.uint64)
for _a, _b in _PAIRS:
    _BESIDE[_a, _b] = sum(1 << c for c in range(_COUNT) if not _clashes(_a, _b, c))
_TWICE = np.array([sum(1 << c for c in range(_COUNT) if not _clashes(a, c, c)) for a in range(_COUNT)], np.uint64)


class Instance:
    """The words of one n and w: `words` (m, n / 3) in lexicographic order."""

    def __init__(self, n: int, w: int) -> None:
        self.n, self.w, self.groups = n, w, n // 3
        self.words = _words(self.groups, w)


def _words(groups: int, weight: int) -> Words:
    found: Words = np.zeros((1, 0), np.int8)
    symbols = np.arange(_COUNT, dtype=np.int8)
    weights = np.array(_WEIGHTS)
    for done in range(1, groups + 1):
        found = np.column_stack((np.repeat(found, _COUNT, axis=0), np.tile(symbols, len(found))))
        so_far = weights[found].sum(axis=1)
        found = found[(so_far <= weight) & (so_far + 3 * (groups - done) >= weight)]
    return found


def instances(split: str) -> list[Instance]:
    """The one instance of `split`; nothing is random here."""
    wanted = _ALIASES.get(split, split)
    if wanted not in _SIZES:
        raise ValueError(f"there is no split {split!r}; there are {', '.join([*_ALIASES, *_SIZES])}")
    return [Instance(*_SIZES[wanted])]


def solve(function: Callable[..., object], instance: Instance) -> list[list[int]]:
    """The words that the greedy construction takes, in its order."""
    n, w = instance.n, instance.w
    scores = np.empty(len(instance.words))
    for place, word in enumerate(instance.words.tolist()):
        scores[place] = _number(function(tuple(itertools.chain.from_iterable(map(_SYMBOLS.__getitem__, word))), n, w))
    words = instance.words[np.argsort(-scores, kind="stable")]
    codes = _codes(words)
    taken: list[list[int]] = []
    while len(words):
        new: list[int] = words[0].tolist()
        taken.append(new)
        free = np.ones(len(words), np.bool_)
        for mask in _masks(new, taken):
            free &= (codes & mask) != 0
        words, codes = words[free], codes[free]
    return taken


def _number(priority: object) -> float:
    value = float(cast(Any, priority))
    if not math.isfinite(value):
        raise FloatingPointError(f"a priority is {value}")
    return value


def _codes(words: Words) -> Codes:
    shifts = 7 * np.arange(words.shape[1], dtype=np.uint64)
    return np.bitwise_or.reduce(np.uint64(1) << (words.astype(np.uint64) + shifts), axis=1)


def _masks(new: Sequence[int], taken: Iterable[Sequence[int]]) -> Codes:
    """Masks of `new` with each word of `taken` and alone: a word whose code shares no bit with one clashes."""
    shifts = 7 * np.arange(len(new), dtype=np.uint64)
    beside = _BESIDE[np.array(new), np.array(taken)]  # (k, groups)
    rows = np.vstack((beside, _TWICE[np.array(new)]))
    return np.unique(np.bitwise_or.reduce(rows << shifts, axis=1))


def objective(solution: object, instance: Instance) -> float:
    """Size of the set that the words stand for, if it is admissible."""
    if not isinstance(solution, list):
        raise ValueError("the set is no list of words")
    chosen: list[list[int]] = []
    for place, entry in enumerate(cast("list[object]", solution)):
        word = cast("list[object]", entry) if isinstance(entry, list) else []
        if len(word) != instance.groups or not all(type(s) is int and 0 <= s < _COUNT for s in word):
            raise ValueError(f"word {place} is not {instance.groups} symbols of 0 to {_COUNT - 1}")
        symbols = cast("list[int]", word)
        if sum(_WEIGHTS[s] for s in symbols) != instance.w:
            raise ValueError(f"word {place} does not have {instance.w} entries that are not 0")
        chosen.append(symbols)
    if not chosen:
        raise ValueError("the set is empty")
    codes = _codes(np.array(chosen, np.int8))
    for place in range(len(chosen)):
        later = codes[place + 1 :]
        for mask in _masks(chosen[place], chosen[: place + 1]):
            if not ((later & mask) != 0).all():
                raise ValueError(f"word {place} clashes with a later one, so the set is not admissible")
    return float(sum(math.prod(_ROTATIONS[s] for s in word) for word in chosen))
