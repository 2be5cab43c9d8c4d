"""TSP by an ant colony: a heuristic says how promising each edge is, ants build tours, the best tour counts.

Instances are the common ones of the literature, bit for bit: uniform in the unit square, drawn in the order of
`_DRAWS` from one `RandomState(1234)`. `validation` and `test` alone mean those with 50 nodes.

The colony: 30 ants, pheromone 1 at the start; an ant starts at a random node and goes to an unvisited node with a
probability proportional to pheromone times heuristic value; then pheromone decays by 0.9 and every ant adds one
over its length to its edges, both ways. All draws come from a seed of the instance, so equal heuristics get equal
tours. The diagonal of the distances is 1, so that a heuristic may divide by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Nodes = NDArray[np.int64]
_Function = TypeVar("_Function", bound=Callable[..., Any])

_DRAWS = (
    ("train", 5, 50),
    *(("validation", 64, size) for size in (20, 50, 100)),
    *(("test", 64, size) for size in (20, 50, 100)),
)
_ALIASES = {"train": "train50", "search": "train50", "validation": "validation50", "test": "test50"}
_SEED = 1234
_ANTS = 30
_DECAY = 0.9
_ITERATIONS = {"train": 100, "validation": 100, "test": 500}
_SMALLEST = 1e-9


class Instance:
    """Nodes in the unit square, and what the colony on them needs."""

    def __init__(self, coordinates: Floats, iterations: int, seed: int) -> None:
        self.coordinates = coordinates  # (n, 2)
        self.size = len(coordinates)
        self.iterations = iterations
        self.seed = seed
        difference = coordinates[:, None, :] - coordinates[None, :, :]  # (n, n, 2)
        self.distances: Floats = np.sqrt(np.add.reduce(difference * difference, axis=2))
        np.fill_diagonal(self.distances, 1.0)


def instances(split: str, count: int | None = None, iterations: int | None = None) -> list[Instance]:
    """The instances of `split`, or the first `count` of them; `iterations` of the colony other than usual."""
    if count is not None and count < 1:
        raise ValueError(f"count = {count!r}; expected 1 or more")
    if iterations is not None and iterations < 1:
        raise ValueError(f"iterations = {iterations!r}; a colony has 1 or more")
    wanted = _ALIASES.get(split, split)
    random = np.random.RandomState(_SEED)
    for name, number, size in _DRAWS:
        coordinates = random.rand(number, size, 2)
        if f"{name}{size}" == wanted:
            rounds = _ITERATIONS[name] if iterations is None else iterations
            _ready()
            return [Instance(nodes, rounds, _SEED + 1000 * size + i) for i, nodes in enumerate(coordinates[:count])]
    names = ", ".join([*_ALIASES, *(f"{name}{size}" for name, _, size in _DRAWS[1:])])
    raise ValueError(f"there is no split {split!r}; there are {names}")


def solve(function: Callable[..., object], instance: Instance) -> list[int] | str:
    """The best tour of the colony; for an answer that is no heuristic matrix what is wrong, for `objective`."""
    heuristic = _matrix(function(instance.distances.copy()), instance.size)
    return heuristic if isinstance(heuristic, str) else _colony(heuristic, instance)


def _matrix(answer: object, size: int) -> Floats | str:
    """The (size, size) heuristic, at least `_SMALLEST` and at most 1 in each row; or what is wrong with it."""
    found = np.asarray(answer)
    if found.shape != (size, size) or found.dtype.kind not in "biuf":
        kind = f"{type(answer).__name__} of shape {found.shape} and type {found.dtype}"
        return f"the heuristic is a {kind}, not a real matrix of shape ({size}, {size})"
    values: Floats = found.astype(np.float64)
    if not np.isfinite(values).all():
        raise FloatingPointError("a heuristic value is not finite")
    values = np.maximum(values, _SMALLEST)
    # Only the ratios within a row matter; this keeps sums of large ones finite.
    return values / values.max(axis=1, keepdims=True)


def _colony(heuristic: Floats, instance: Instance) -> list[int]:
    random = np.random.RandomState(instance.seed)
    pheromone = np.ones_like(heuristic)
    tours = np.empty((_ANTS, instance.size), np.int64)
    lengths = np.empty(_ANTS)
    best, shortest = np.arange(instance.size), np.inf
    for _ in range(instance.iterations):
        draws = random.random_sample((_ANTS, instance.size))
        _walk(instance.distances, pheromone * heuristic, draws, tours, lengths)
        ant = int(lengths.argmin())
        if lengths[ant] < shortest:
            best, shortest = tours[ant].copy(), lengths[ant]
        pheromone *= _DECAY
        _deposit(pheromone, tours, lengths)
    return best.tolist()


def _compiled(function: _Function) -> _Function:
    """`numba.njit`, cached on disk where a place for the cache can be written."""
    njit = cast(Callable[..., Callable[[_Function], _Function]], numba.njit)
    try:
        return njit(cache=True)(function)
    except RuntimeError:  # no such place: compile once a process
        return njit(cache=False)(function)


@_compiled
def _walk(distances: Floats, weights: Floats, draws: Floats, tours: Nodes, lengths: Floats) -> None:
    """Fill `tours` (ants, n) and `lengths` (ants,); `weights` (n, n) of the edges, `draws` (ants, n) in [0, 1)."""
    size = len(distances)
    left = np.empty(size, np.int64)
    for ant in range(len(tours)):
        for node in range(size):
            left[node] = node
        place = int(draws[ant, 0] * size)
        length = 0.0
        for step in range(size):
            remain = size - step
            if step > 0:
                row = weights[tours[ant, step - 1]]
                total = 0.0
                for i in range(remain):
                    total += row[left[i]]
                aim = draws[ant, step] * total
                place = 0
                reached = row[left[0]]
                while reached <= aim and place < remain - 1:
                    place += 1
                    reached += row[left[place]]
                length += distances[tours[ant, step - 1], left[place]]
            tours[ant, step] = left[place]
            left[place] = left[remain - 1]
        lengths[ant] = length + distances[tours[ant, size - 1], tours[ant, 0]]


@_compiled
def _deposit(pheromone: Floats, tours: Nodes, lengths: Floats) -> None:
    """Add one over its length to both directions of each edge of each tour."""
    for ant in range(len(tours)):
        before = tours[ant, -1]
        for node in tours[ant]:
            pheromone[before, node] += 1.0 / lengths[ant]
            pheromone[node, before] += 1.0 / lengths[ant]
            before = node


def _ready() -> None:
    """Compile now: what a candidate's process compiles would be lost with it."""
    square, tours, lengths = np.ones((2, 2)), np.zeros((1, 2), np.int64), np.ones(1)
    _walk(square, square, np.zeros((1, 2)), tours, lengths)
    _deposit(square, tours, lengths)


def objective(solution: object, instance: Instance) -> float:
    """Length of the closed tour `solution`."""
    if isinstance(solution, str):
        raise ValueError(solution[:200])
    if not isinstance(solution, list):
        raise ValueError("the tour is no list")
    tour = cast("list[object]", solution)
    if not all(type(node) is int for node in tour) or sorted(cast("list[int]", tour)) != list(range(instance.size)):
        raise ValueError(f"the tour does not visit each of the nodes 0 to {instance.size - 1} once")
    path = instance.coordinates[np.array(tour, dtype=np.intp)]  # (n, 2)
    step = path - np.roll(path, -1, axis=0)
    return float(np.sqrt(np.add.reduce(step * step, axis=1)).sum())


def bound(instance: Instance) -> float:
    """A length that no tour is shorter than; for races, in the run alone."""
    from coevo_heuristics.one_tree import one_tree_bound

    return one_tree_bound(instance.distances)
