"""A constructive heuristic for the travelling salesman problem: go to the node with the smallest score."""

import numpy as np

# Tells the evaluator that it may call `score` itself, which gives the same tours sooner.
HOLE = "expression"


def score(d_current: np.ndarray, d_home: np.ndarray, d_mean: np.ndarray) -> np.ndarray:
    """Score the unvisited nodes, (k,); the smallest is visited next. One number stands for all of them."""
    return d_current  # coevo: hole


def select_next_node(
    current_node: int, destination_node: int, unvisited_nodes: np.ndarray, distance_matrix: np.ndarray
) -> int:
    """Return the node to visit next, one of `unvisited_nodes`."""
    d_current = distance_matrix[current_node, unvisited_nodes]
    d_home = distance_matrix[unvisited_nodes, destination_node]
    d_mean = distance_matrix[np.ix_(unvisited_nodes, unvisited_nodes)].mean(axis=1)
    scores = np.broadcast_to(np.asarray(score(d_current, d_home, d_mean)), unvisited_nodes.shape)
    if not np.isfinite(scores).all():
        raise FloatingPointError("a score is not finite")
    return unvisited_nodes[np.argmin(scores)]
