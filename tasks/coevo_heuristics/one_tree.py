"""Lower bounds for tours: the 1-tree of Held and Karp, its node weights improved by subgradient steps.

A 1-tree is a spanning tree of all nodes but node 0, and the two cheapest edges of node 0. Every tour is one, so none is
shorter than the cheapest. Adding weights to nodes changes all tours alike and 1-trees not, which is what the steps use.
Held and Karp, The traveling-salesman problem and minimum spanning trees II (1971); the length of the steps as
Volgenant and Jonker (1982).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Nodes = NDArray[np.intp]

STEPS = 25
_SHARES = (0.6, 0.4)  # of this step's direction and of the last one's
_DECAY = 0.87


def spanning_tree(costs: Floats) -> tuple[Nodes, Floats]:
    """A cheapest spanning tree of a complete graph, by Prim.

    Args:
        costs: (n, n), symmetric; the diagonal is not read.

    Returns:
        The node to which each of the nodes 1 to n - 1 is joined, and the cost of that edge; both (n - 1,).
    """
    size = len(costs)
    nearest: Floats = costs[0].copy()
    joined = np.zeros(size, np.intp)
    paid = np.zeros(size)
    open_ = np.ones(size, np.bool_)
    open_[0] = False
    nearest[0] = np.inf
    for _ in range(size - 1):
        node = int(nearest.argmin())
        paid[node] = nearest[node]
        open_[node] = False
        nearest[node] = np.inf
        closer = open_ & (costs[node] < nearest)
        joined[closer] = node
        nearest[closer] = costs[node][closer]
    return joined[1:], paid[1:]


def subgradient_bound(relaxed: Callable[[Floats], tuple[float, Floats]], size: int, steps: int = STEPS) -> float:
    """The best of the bounds that `steps` weights give.

    Args:
        relaxed: for weights (size,) the cost of the cheapest relaxed solution, less what the weights add to every
            real one; and by how many edges each node has too many in it, (size,).
        size: number of weights.
        steps: more make it tighter.
    """
    weights, before = np.zeros(size), np.zeros(size)
    best, step = -np.inf, 0.0
    for turn in range(steps):
        cost, direction = relaxed(weights)
        best = max(best, cost)
        if not direction.any():
            break  # a real solution: the best
        if turn == 0:
            step, before = cost / (2.0 * size), direction
        weights += step * (_SHARES[0] * direction + _SHARES[1] * before)
        before = direction
        step *= _DECAY
    return best


def one_tree_bound(distances: Floats, steps: int = STEPS) -> float:
    """A length that no closed tour through all nodes is shorter than.

    Args:
        distances: (n, n), symmetric; the diagonal is not read.
        steps: subgradient steps; more make it tighter.
    """
    size = len(distances)
    if size < 3:
        return 2.0 * float(distances[0, 1]) if size == 2 else 0.0

    def relaxed(weights: Floats) -> tuple[float, Floats]:
        costs = distances + weights[:, None] + weights[None, :]
        joined, paid = spanning_tree(costs[1:, 1:])
        ends = np.argpartition(costs[0, 1:], 1)[:2] + 1
        degrees = np.bincount(joined + 1, minlength=size) + 1
        degrees[1] -= 1  # the tree starts there, so it is joined to none
        degrees[0] = 2
        degrees[ends] += 1
        return float(paid.sum() + costs[0, ends].sum() - 2.0 * weights.sum()), (degrees - 2).astype(np.float64)

    return subgradient_bound(relaxed, size, steps)
