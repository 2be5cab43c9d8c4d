"""TSP, constructive: a heuristic chooses the next node until all are visited; the tour is closed.

Instances are the common ones of the literature, bit for bit: uniform in the unit square, drawn in the order
of `_DRAWS` from one `RandomState(1234)`. `validation` and `test` alone mean those with 50 nodes.

Two sets of rules. `all` is the default: the heuristic sees every node that is left, in ascending order. `paper` is
Agentic ESOpt's: it sees the 50 nearest to the current node, the nearest first, and may choose any that is left.
With 50 nodes these are the same nodes in another order; with more a heuristic sees less.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import Literal, SupportsIndex, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Nodes = NDArray[np.intp]
Score = Callable[[Floats, Floats, Floats], object]

_DRAWS = (
    ("train", 64, 50),
    *(("validation", 64, size) for size in (20, 50, 100, 200)),
    *(("test", 1000, size) for size in (20, 50, 100, 200, 500, 1000)),
)
_ALIASES = {"train": "train50", "search": "train50", "validation": "validation50", "test": "test50"}
_KEPT_NODES = 100
Rules: TypeAlias = Literal["all", "paper"]
_RULES = get_args(Rules)
_PAPER_SHOWN = 50


class Instance:
    """Nodes in the unit square; the tour starts at node 0."""

    def __init__(self, coordinates: Floats, rules: str = "all") -> None:
        self.rules = rules
        self.coordinates = coordinates  # (n, 2)
        self.size = len(coordinates)
        # A thousand matrices of a thousand nodes would take 8 GB.
        self._distances = _distances(coordinates) if self.size <= _KEPT_NODES else None

    def distances(self) -> Floats:
        """(n, n) Euclidean distances."""
        return _distances(self.coordinates) if self._distances is None else self._distances


def _distances(coordinates: Floats) -> Floats:
    difference = coordinates[:, None, :] - coordinates[None, :, :]  # (n, n, 2)
    return np.sqrt(np.add.reduce(difference * difference, axis=2))


def instances(split: str, count: int | None = None, rules: Rules = "all") -> list[Instance]:
    """The instances of `split`, or the first `count` of them."""
    if count is not None and count < 1:
        raise ValueError(f"count = {count!r}; expected 1 or more")
    if rules not in _RULES:
        raise ValueError(f"there are no rules {rules!r}; there are {', '.join(_RULES)}")
    wanted = _ALIASES.get(split, split)
    random = np.random.RandomState(1234)
    for name, number, size in _DRAWS:
        coordinates = random.rand(number, size, 2)
        if f"{name}{size}" == wanted:
            return [Instance(nodes, rules) for nodes in coordinates[:count]]
    names = ", ".join([*_ALIASES, *(f"{name}{size}" for name, _, size in _DRAWS[1:])])
    raise ValueError(f"there is no split {split!r}; there are {names}")


def work(instance: Instance) -> float:
    """How much longer a heuristic may take: it looks at all nodes that are left at every step."""
    return float(instance.size) ** 2


def solve(function: Callable[..., object], instance: Instance) -> list[object]:
    """Build a tour; one that `function` spoils ends with what it returned, for `objective` to refuse."""
    module = getattr(function, "__globals__", {})
    if module.get("HOLE") == "expression":
        return list(_by_score(module["score"], instance.distances(), instance.rules))
    return list(_by_choice(function, instance.distances(), instance.rules))


def _shown(unvisited: Nodes, from_current: Floats, rules: str) -> Nodes:
    """The nodes that a heuristic is asked to choose from, in their order."""
    if rules == "all":
        return unvisited
    return unvisited[np.argsort(from_current.take(unvisited), kind="stable")[:_PAPER_SHOWN]]


def _by_choice(function: Callable[..., object], shared: Floats, rules: str) -> Iterator[object]:
    distances = shared.copy()
    distances.setflags(write=False)  # the sandbox need not look whether it has changed
    unvisited = np.arange(1, len(distances))
    current = 0
    yield current
    while unvisited.size > 1:
        answer = function(current, 0, _shown(unvisited, shared[current], rules).copy(), distances)
        node = _node(answer)
        place = -1 if node is None else int(np.searchsorted(unvisited, node))
        if node is None or place >= unvisited.size or unvisited[place] != node:
            yield node if node is not None else repr(answer)[:100]
            return
        current = node
        unvisited = _without(unvisited, place)
        yield current
    yield int(unvisited[0])


def _node(answer: object) -> int | None:
    if isinstance(answer, (float, np.floating)) and not math.isfinite(cast(float, answer)):
        raise FloatingPointError(f"the next node is {answer}")
    if isinstance(answer, (bool, np.bool_)):
        return None
    try:
        return operator.index(cast(SupportsIndex, answer))
    except TypeError:
        return None


def _by_score(score: Score, distances: Floats, rules: str) -> Iterator[object]:
    """The tour that `select_next_node` of template_expression.py gives, without its overhead."""
    unvisited = np.arange(1, len(distances))
    home = distances[:, 0]
    current = 0
    yield current
    while unvisited.size > 1:
        shown = _shown(unvisited, distances[current], rules)
        among = distances.take(shown, axis=0).take(shown, axis=1)  # (k, k)
        d_mean = np.add.reduce(among, axis=1) / shown.size
        scores = np.asarray(score(distances[current].take(shown), home.take(shown), d_mean))
        if scores.shape != shown.shape:
            scores = np.broadcast_to(scores, shown.shape)
        if not np.isfinite(scores).all():
            raise FloatingPointError("a score is not finite")
        current = int(shown[int(scores.argmin())])
        unvisited = _without(unvisited, int(np.searchsorted(unvisited, current)))
        yield current
    yield int(unvisited[0])


def _without(nodes: Nodes, place: int) -> Nodes:
    return np.concatenate((nodes[:place], nodes[place + 1 :]))


def objective(solution: object, instance: Instance) -> float:
    """Length of the closed tour `solution`."""
    if not isinstance(solution, list):
        raise ValueError("the tour is no list")
    tour = cast("list[object]", solution)
    seen: set[object] = set()
    for step, node in enumerate(tour):
        if type(node) is not int or not 0 <= node < instance.size:
            raise ValueError(f"step {step} goes to {node!r:.100}, which is no node of 0 to {instance.size - 1}")
        if node in seen:
            raise ValueError(f"step {step} goes to node {node} again")
        seen.add(node)
    if len(tour) != instance.size:
        raise ValueError(f"the tour has {len(tour)} of {instance.size} nodes")
    if tour[0] != 0:
        raise ValueError(f"the tour starts at node {tour[0]}, not at node 0")
    path = instance.coordinates[np.array(tour, dtype=np.intp)]  # (n, 2)
    step = path - np.roll(path, -1, axis=0)
    return float(np.sqrt(np.add.reduce(step * step, axis=1)).sum())


def bound(instance: Instance) -> float:
    """A length that no tour is shorter than; for races, in the run alone."""
    from coevo_heuristics.one_tree import one_tree_bound

    return one_tree_bound(instance.distances())
