"""What the weights learn from an EoH batch: each answer against the best parent that it was shown.

Three kinds. `parent` and `best` (against the best heuristic of the population instead) come in tiers; `paper` is the
reward of Agentic ESOpt, for comparison: valid answers may get less than failures there.

Tiers never cross: failure < duplicate < worse than the parent < better (the order of CALM, arXiv
2505.12285), so broken code never outranks a valid program. Within the two upper tiers credit grows with the
difference, squashed, so that one terrible program cannot drown the differences of all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from coevo import Buffer, Context
from coevo.numerics.credit import default_credit, with_credits
from coevo.numerics.shaping import average_ranks
from coevo_eoh.population import Heuristic, spread

CreditKind: TypeAlias = Literal["parent", "best", "paper"]

FAILURE = 0.0
DUPLICATE = 0.4
WORSE = (0.45, 0.6)
BETTER = (0.8, 1.0)

UNIT = 0.1
"""Share of the reference that counts as one unit of difference where the population has no spread."""


PAPER_FLOOR = -1.0
"""What a failure loses at most, in units of the objective (arXiv 2608.17310)."""


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


def credited(
    buffer: Buffer, kind: CreditKind, population: Sequence[Heuristic], baseline: float | None = None
) -> Buffer:
    """`buffer` with its credits.

    Args:
        buffer: of one operator.
        kind: whose rule.
        population: heuristics kept when the batch was asked.
        baseline: return of the task's baseline, if it has one.
    """
    if kind == "paper":
        return paper_credits(buffer, population)
    best = max((heuristic.value for heuristic in population), default=None) if kind == "best" else None
    standard = None if best is None else (best, spread(population))
    return with_credits(buffer, tiered_credits(buffer, population, baseline, standard))


def paper_credits(buffer: Buffer, population: Sequence[Heuristic]) -> Buffer:
    """The gain over the parent; a failure, or what is worse than the whole population, gets the worst one's, or −1.

    So a valid answer far below its parent may get less than a failure does; the unit is the objective's. While nothing
    is kept the credit is the return, a failure being one standard deviation below the worst.
    """
    if not population:
        return default_credit(buffer, "below")
    values = [heuristic.value for heuristic in population]
    worst, best = min(values), max(values)
    earned: list[float] = []
    for rollout in buffer.rollouts:
        data = buffer.batch.contexts[rollout.provenance.context].data
        parent = float(cast(float, data.get("reference", best)))
        if rollout.return_ is not None and rollout.return_ >= worst:
            earned.append(rollout.return_ - parent)
        else:
            earned.append(max(worst - parent, PAPER_FLOOR))
    return with_credits(buffer, earned)


def tiered_credits(
    buffer: Buffer,
    population: Iterable[Heuristic],
    baseline: float | None,
    standard: tuple[float, float] | None = None,
) -> list[float]:
    """One credit per rollout of `buffer`, in plan order.

    A duplicate equals a parent or a heuristic of the population. Repeating what the same batch said before is none:
    it would count against the later members, and within a member it hides what its weights are worth behind how
    varied its answers happened to be. An answer without parents is measured against `baseline` (a return), or by
    its rank among such answers.

    Args:
        buffer: of one operator.
        population: heuristics kept when the batch was asked.
        baseline: return of the task's baseline, if it has one.
        standard: (return, spread) that all answers are measured with, whatever they were shown.
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
        elif (reference := _reference(context, baseline, standard)) is None:
            unreferenced.append((index, heuristic.value))
        else:
            earned[index] = _against(*reference, heuristic.value)
    for index, credit in _by_rank(unreferenced):
        earned[index] = credit
    return earned


def _reference(
    context: Context, baseline: float | None, standard: tuple[float, float] | None
) -> tuple[float, float] | None:
    """(value, unit) that an answer to `context` is measured with."""
    data: Mapping[str, Any] = context.data
    value, difference = standard or (cast("float | None", data.get("reference", baseline)), data.get("spread", 0.0))
    if value is None:
        return None
    return value, float(difference) or UNIT * abs(value) or 1.0


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
