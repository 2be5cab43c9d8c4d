"""How many workers there are and what each may use: arithmetic on the nodes' CPUs and GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from coevo.errors import UserError

_FINEST = 4
"""The smallest share of a CPU that a worker is given unasked is one of so many: each of them holds a whole model."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a machine offers."""

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Shares:
    """What the pool takes: so many workers, each with so much."""

    workers: int
    cpus: float
    gpus: float

    @property
    def threads(self) -> int:
        """CPU threads of a worker: its CPUs, at least 1."""
        return max(1, int(self.cpus))


def shares(nodes: Sequence[Node], workers: int, cpus: float | None, gpus: float | None) -> Shares:
    """Divide what there is.

    Args:
        nodes: every machine.
        workers: how many; 0 is as many as there is room for.
        cpus: of a worker; None is the largest equal share, 1 where `workers` is 0.
        gpus: of a worker; None is 1 where there are GPUs, else 0.

    Raises:
        UserError: they do not fit.
    """
    if gpus is None:
        gpus = 1.0 if any(node.gpus >= 1 for node in nodes) else 0.0
    for name, value in (("gpus", gpus), ("cpus", cpus or 0.0)):
        if value > 1 and value != int(value):
            raise UserError(f"ray.{name} got {value}: more than 1 must be a whole number")
    if not workers:
        cpus = cpus or 1.0
        return Shares(_room(nodes, cpus, gpus) or _refuse(nodes, 1, cpus, gpus), cpus, gpus)
    for share in [cpus] if cpus else _equal(nodes, workers):
        if _room(nodes, share, gpus) >= workers:
            return Shares(workers, share, gpus)
    return Shares(_refuse(nodes, workers, cpus or 1 / _FINEST, gpus), 0, 0)


def _room(nodes: Sequence[Node], cpus: float, gpus: float) -> int:
    """How many workers fit; a worker is on one machine."""
    # A share such as 1/3 is no float: three of them must still fit into one CPU.
    return sum(int(min(n.cpus / cpus, n.gpus / gpus if gpus else math.inf) + 1e-6) for n in nodes)


def _equal(nodes: Sequence[Node], workers: int) -> Iterator[float]:
    """Shares of CPUs from the largest down; Ray counts in ten-thousandths."""
    yield from map(float, range(int(sum(n.cpus for n in nodes)) // workers, 0, -1))
    yield from (math.floor(10_000 / parts) / 10_000 for parts in range(2, _FINEST + 1))


def _refuse(nodes: Sequence[Node], workers: int, cpus: float, gpus: float) -> int:
    room, each = _room(nodes, cpus, gpus), f"{cpus:g} CPU and {gpus:g} GPU each"
    total = f"{sum(n.cpus for n in nodes):g} CPUs and {sum(n.gpus for n in nodes):g} GPUs on {len(nodes)} machine(s)"
    raise UserError(
        f"ray.workers={workers} with {each} do not fit into {total}, where there is room for {room}; "
        "set ray.workers, ray.cpus or ray.gpus lower"
    )
