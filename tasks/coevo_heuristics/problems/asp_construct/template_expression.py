"""A constructive heuristic for symmetric admissible sets: the vector with the highest score comes next."""

from itertools import pairwise

import numpy as np  # noqa: F401  # pyright: ignore[reportUnusedImport] - for what comes into the hole


def score(ones: int, empty: int, full: int, changes: int, place: float) -> float:
    """Score one vector; the highest comes into the set next, the first of equal ones."""
    return 0.0  # coevo: hole


def priority(el: tuple[int, ...], n: int, w: int) -> float:
    """Return the priority of vector `el` of {0, 1, 2}^n with `w` entries that are not 0."""
    groups = [el[start : start + 3] for start in range(0, n, 3)]
    zeros = [position for position, entry in enumerate(el) if entry == 0]
    return score(
        ones=el.count(1),
        empty=sum(not any(group) for group in groups),
        full=sum(all(group) for group in groups),
        changes=sum(a != b for a, b in pairwise(el)),
        place=sum(zeros) / (len(zeros) * n),
    )
