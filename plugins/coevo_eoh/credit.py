"""What the weights learn from an EoH batch: each answer against the best parent that it was shown.

Tiers never cross: failure < duplicate < worse than the parent < better (the order of CALM, arXiv
2505.12285), so broken code never outranks a valid program. Within the two upper tiers credit grows with the
difference, squashed, so that one terrible program cannot drown the differences of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from coevo import Buffer, Context
from coevo.shaping import average_ranks
from coevo_eoh.population import Heuristic

FAILURE = 0.0
DUPLICATE = 0.4
WORSE = (0.45, 0.6)
BETTER = (0.8, 1.0)

UNIT = 0.1
"""Share of the reference that counts as one unit of difference where the population has no spread."""


def parent_data(parents: Sequence[Heuristic], spread: float) -> dict[str, Any]:
    """What `tiered_credits` wants back from a context: best parent's value, spread, what the parents are."""
    if not parents:
        return {}
    return {
        "parents": [{"id": p.id, "objective": p.objective} for p in parents],
        "reference": max(p.value for p in parents),
        "spread": spread,
        "keys": sorted({key for p in parents for key in p.keys}),
    }


def tiered_credits(buffer: Buffer, population: Iterable[Heuristic], baseline: float | None) -> list[float]:
    """One credit per rollout of `buffer`, in plan order.

    A duplicate equals a parent or a heuristic of the population. Repeating what the same batch said before is none:
    it would count against the later members, and within a member it hides what its weights are worth behind how
    varied its answers happened to be. An answer without parents is measured against `baseline` (a return), or by
    its rank among such answers.

    Args:
        buffer: of one operator.
        population: heuristics kept when the batch was asked.
        baseline: return of the task's baseline, if it has one.
    """
    kept = {key for heuristic in population for key in heuristic.keys}
    earned = [FAILURE] * len(buffer.rollouts)
    unreferenced: list[tuple[int, float]] = []
    for index, rollout in enumerate(buffer.rollouts):
        heuristic = Heuristic.of(rollout)
        if heuristic is None:
            continue
        context = buffer.batch.contexts[rollout.provenance.context]
        shown = set(cast(Sequence[str], context.data.get("keys", ())))
        if not heuristic.keys.isdisjoint(kept | shown):
            earned[index] = DUPLICATE
        elif (reference := _reference(context, baseline)) is None:
            unreferenced.append((index, heuristic.value))
        else:
            earned[index] = _against(*reference, heuristic.value)
    for index, credit in _by_rank(unreferenced):
        earned[index] = credit
    return earned


def _reference(context: Context, baseline: float | None) -> tuple[float, float] | None:
    """(value, unit) that an answer to `context` is measured with."""
    data: Mapping[str, Any] = context.data
    value = cast("float | None", data.get("reference", baseline))
    if value is None:
        return None
    return value, float(data.get("spread", 0.0)) or UNIT * abs(value) or 1.0


def _against(reference: float, unit: float, value: float) -> float:
    gain = value - reference
    squashed = 1.0 - 1.0 / (1.0 + abs(gain) / unit)
    if gain > 0.0:
        return BETTER[0] + (BETTER[1] - BETTER[0]) * squashed
    return WORSE[1] - (WORSE[1] - WORSE[0]) * squashed


def _by_rank(answers: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Average ranks scaled from the bottom of `WORSE` to the top of `BETTER`; a lone one gets the middle."""
    if not answers:
        return []
    ranks = average_ranks(np.array([value for _, value in answers], dtype=np.float64))
    shares = ranks / (len(answers) - 1) if len(answers) > 1 else np.array([0.5])
    scaled = WORSE[0] + (BETTER[1] - WORSE[0]) * shares
    return [(index, float(credit)) for (index, _), credit in zip(answers, scaled, strict=True)]
