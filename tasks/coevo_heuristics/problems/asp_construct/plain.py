"""The evaluator of asp_construct once more, written plainly: a second opinion for tests, a yardstick for speed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

_GROUPS = ((0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 2), (0, 2, 1), (1, 1, 1), (2, 2, 2))
Group = tuple[int, ...]
Word = tuple[Group, ...]


def _rotations(group: Group) -> set[Group]:
    return {group[i:] + group[:i] for i in range(3)}


def _clash(first: Group, second: Group, third: Group) -> bool:
    """Whether some rotations of three groups have no place with the values {0, 1, 2}, {0, 0, 1} or {0, 0, 2}."""
    for groups in itertools.product(_rotations(first), _rotations(second), _rotations(third)):
        if not any(sorted(values) in ([0, 1, 2], [0, 0, 1], [0, 0, 2]) for values in zip(*groups, strict=True)):
            return True
    return False


_CLASHES = {groups for groups in itertools.product(_GROUPS, repeat=3) if _clash(*groups)}


def evaluate(function: Callable[..., Any], instance: Any) -> float:
    """Size of the set that the greedy construction gives; `FloatingPointError` for a priority that is not finite."""
    n, w = instance.n, instance.w
    left: list[tuple[float, Word]] = []
    for word in itertools.product(_GROUPS, repeat=n // 3):
        vector = tuple(itertools.chain.from_iterable(word))
        if sum(entry != 0 for entry in vector) == w:
            priority = float(function(vector, n, w))
            if not math.isfinite(priority):
                raise FloatingPointError(f"a priority is {priority}")
            left.append((priority, word))
    # Of equal priorities the first comes first: the sort is stable.
    left.sort(key=lambda pair: -pair[0])
    words = [word for _, word in left]
    taken: list[Word] = []
    while words:
        new = words[0]
        taken.append(new)
        words = [word for word in words if not _excluded(word, new, taken)]
    return float(sum(math.prod(len(_rotations(group)) for group in word) for word in taken))


def _excluded(word: Word, new: Word, taken: list[Word]) -> bool:
    """Whether `word` clashes with the new word and one of those that are taken, the new one and itself included."""
    return any(all(groups in _CLASHES for groups in zip(word, new, other, strict=True)) for other in [*taken, word])
