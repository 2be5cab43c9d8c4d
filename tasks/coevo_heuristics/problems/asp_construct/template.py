"""A constructive heuristic for symmetric admissible sets: `priority` orders the vectors."""

import numpy as np  # noqa: F401  # pyright: ignore[reportUnusedImport] - for what comes into the hole


# coevo: hole
def priority(el: tuple[int, ...], n: int, w: int) -> float:
    """Return the priority of vector `el`; the highest comes next: here all are equal, so the first one does."""
    return 0.0


# coevo: end
