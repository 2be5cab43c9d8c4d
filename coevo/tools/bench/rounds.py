"""Rounds of two ways in turn: a busy machine must slow both, so a ratio is taken within a round."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import Any

from coevo.errors import UserError
from coevo.host.discovery import load
from coevo.optional import closed
from coevo.records import Json


def require(**numbers: int) -> None:
    """Refuse numbers below 1.

    Raises:
        UserError: which.
    """
    for name, value in numbers.items():
        if value < 1:
            raise UserError(f"{name} got {value}: it should be 1 or more")


def seconds(run: Callable[[], object]) -> float:
    """How long it takes."""
    begin = perf_counter()
    run()
    return perf_counter() - begin


def in_turn(
    ours: Callable[[int], float], reference: Callable[[int], float], rounds: int
) -> tuple[list[float], list[float]]:
    """What both ways measure in rounds 1, 2, …; round 0 of each is not counted, and who begins alternates."""
    ours(0)
    reference(0)
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(1, rounds + 1):
        both = [(found[0], ours), (found[1], reference)]
        for kept, way in both if number % 2 else reversed(both):
            kept.append(way(number))
    return found


def spread(over: Sequence[float], under: Sequence[float], name: str = "ratio") -> dict[str, Json]:
    """Ratios of the rounds: `name`, their median, with `_min` and `_max`."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    return {name: median(ratios), f"{name}_min": min(ratios), f"{name}_max": max(ratios)}


@contextmanager
def working(engine: str, model: str, options: Mapping[str, Json] | None) -> Generator[Any]:
    """An engine by name, closed in the end.

    Raises:
        UserError: unknown name or option, or a model that it cannot load.
    """
    made = load().registries().engines.create(engine, dict(options or {}), model=model)
    try:
        yield made
    finally:
        closed(made)
