"""The heuristics that EoH keeps: what counts as equal, who survives, who becomes a parent."""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from statistics import median
from typing import Any, cast

import numpy as np

from coevo import Rollout
from coevo.records import Json

DIGITS = 8
"""Significant digits to which values are compared: EoH's five decimals, without a unit."""


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A valid program.

    Attributes:
        id: of the rollout that wrote it.
        value: its return, higher is better; all comparisons use it.
        objective: the same in the problem's own direction; only shown.
        answer: source as a model should see it.
        thought: one sentence on the idea, or empty.
        code_key: hash of its canonical syntax tree, empty where the task gives none.
        behaviour: hash of its rounded value (of the values per instance where the task gives them).
        operator: that made it.
        parents: ids of the heuristics shown when it was made.
    """

    id: str
    value: float
    objective: float
    answer: str
    thought: str
    code_key: str
    behaviour: str
    operator: str
    parents: tuple[str, ...]

    @property
    def keys(self) -> frozenset[str]:
        """Two heuristics are equal if they share one of these."""
        code = (f"code:{self.code_key}",) if self.code_key else ()
        return frozenset((f"behaviour:{self.behaviour}", *code))

    def to_json(self) -> Json:
        """As plain JSON."""
        return asdict(self) | {"parents": list(self.parents)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Heuristic:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = {**data, "parents": tuple(data["parents"])}
        return cls(**fields)

    @classmethod
    def of(cls, rollout: Rollout, parents: tuple[str, ...] = ()) -> Heuristic | None:
        """The program of a rollout, None unless it is valid."""
        if rollout.return_ is None:
            return None
        made = rollout.artifacts
        values = cast(Sequence[float], made.get("instances") or [rollout.return_])
        return cls(
            id=rollout.id,
            value=rollout.return_,
            objective=rollout.metrics.get("objective", rollout.return_),
            answer=str(made.get("answer", "")),
            thought=str(made.get("thought", "")),
            code_key=str(made.get("code_key", "")),
            behaviour=_fingerprint(values),
            operator=rollout.provenance.operator,
            parents=parents,
        )


def _fingerprint(values: Sequence[float]) -> str:
    # + 0.0 turns −0.0 into 0.0, which is the same behaviour.
    text = ",".join(f"{value + 0.0:.{DIGITS}g}" for value in values)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def survivors(candidates: Iterable[Heuristic], size: int) -> tuple[Heuristic, ...]:
    """The `size` best distinct heuristics, best first; of equals the better, then the earlier, stays."""
    kept: list[Heuristic] = []
    seen: set[str] = set()
    for heuristic in sorted(candidates, key=lambda h: -h.value):
        if len(kept) == size:
            break
        if seen.isdisjoint(heuristic.keys):
            kept.append(heuristic)
            seen |= heuristic.keys
    return tuple(kept)


def draw_parents(rng: np.random.Generator, population: Sequence[Heuristic], count: int) -> tuple[Heuristic, ...]:
    """`count` heuristics (fewer where there are fewer), best first, none twice.

    Drawn one after the other with weight 1/(r + 1 + N) for rank r from 0 of N heuristics: EoH's rank
    selection (arXiv 2401.02051). It is nearly flat: best to worst is about 2 to 1.
    """
    ranks = list(range(len(population)))
    chosen: list[int] = []
    for _ in range(min(count, len(population))):
        edges = list(accumulate(1.0 / (rank + 1 + len(population)) for rank in ranks))
        place = bisect(edges, rng.random() * edges[-1])
        chosen.append(ranks.pop(min(place, len(ranks) - 1)))
    return tuple(population[rank] for rank in sorted(chosen))


def spread(population: Sequence[Heuristic]) -> float:
    """From the median heuristic to the best, in units of the return: how large a difference is here."""
    values = [heuristic.value for heuristic in population]
    return max(values) - median(values) if values else 0.0
