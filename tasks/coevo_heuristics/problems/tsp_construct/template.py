"""A constructive heuristic for the travelling salesman problem: `select_next_node` builds a tour node by node."""

import numpy as np


# coevo: hole
def select_next_node(
    current_node: int, destination_node: int, unvisited_nodes: np.ndarray, distance_matrix: np.ndarray
) -> int:
    """Return the node to visit next, one of `unvisited_nodes`: here the nearest."""
    distances = distance_matrix[current_node, unvisited_nodes]
    return unvisited_nodes[np.argmin(distances)]


# coevo: end
