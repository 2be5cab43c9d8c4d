"""From rollouts to one number a member: default credits, centring, means and variances."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coevo.records import EXCLUDED, Buffer, Rollout
from coevo.shaping import Floats

TIE = 1e-12
"""Numbers that agree to this share of the largest are equal."""


def default_credit(buffer: Buffer, failure: Literal["below"] | float) -> Buffer:
    """Credit = return; a failure of the model is worth `failure`.

    `below` puts failures under the worst valid return of the batch by one standard deviation of the valid
    ones (by 1 where they are all equal). Excluded rollouts get no credit. Where nothing is valid every
    failure has credit 0: no difference, no step.
    """
    valid = [r.return_ for r in buffer.rollouts if r.return_ is not None]
    if failure != "below":
        worth = float(failure)
    elif valid:
        worth = min(valid) - (float(np.std(valid)) if _differ(valid) else 1.0)
    else:
        worth = 0.0
    return with_credits(buffer, [worth if r.return_ is None else r.return_ for r in buffer.rollouts])


def _differ(values: Sequence[float]) -> bool:
    """Whether values differ by more than the rounding of their summation."""
    return max(values) - min(values) > TIE * max(abs(value) for value in values)


def with_credits(buffer: Buffer, credits: Sequence[float | None]) -> Buffer:
    """`buffer` with `credits[i]` on rollout i; excluded rollouts keep None whatever is given.

    Raises:
        ValueError: the lengths differ.
    """
    if len(credits) != len(buffer.rollouts):
        raise ValueError(f"{len(credits)} credits for {len(buffer.rollouts)} rollouts")
    rollouts = tuple(
        dataclasses.replace(rollout, credit=None if rollout.status in EXCLUDED else credit)
        for rollout, credit in zip(buffer.rollouts, credits, strict=True)
    )
    return dataclasses.replace(buffer, rollouts=rollouts)


@dataclass(frozen=True, slots=True)
class MemberCredits:
    """Credits reduced to members.

    Attributes:
        members: indices of the members with at least one scored rollout, ascending.
        means: float64 (len(members),), mean credit of each.
        informative: members whose mean differs from the median member by more than 1e-12.
        variance_ratio: variance of the member means over that expected from within-member noise alone
            (1 = nothing but noise; nan where it cannot be told).
    """

    members: tuple[int, ...]
    means: Floats
    informative: int
    variance_ratio: float


def member_credits(buffer: Buffer) -> MemberCredits:
    """Mean credit per member.

    In `cross` batches credits are first centred per (context, example), so that hard examples do not leak
    into the members. `zip` batches are centred the same way only where all members share one context;
    otherwise their credit carries its own reference (see `Crediting`).
    """
    scored = [r for r in buffer.rollouts if r.credit is not None and r.provenance.member is not None]
    shared = buffer.batch.pairing == "cross" or len({c.id for c in buffer.batch.contexts}) == 1
    offsets = _cell_means(scored) if shared else {}
    values: dict[int, list[float]] = defaultdict(list)
    for rollout in scored:
        p = rollout.provenance
        assert rollout.credit is not None
        assert p.member is not None
        values[p.member].append(rollout.credit - offsets.get((p.context_id, p.example), 0.0))
    members = tuple(sorted(values))
    means = np.array([np.mean(values[m]) for m in members], dtype=np.float64)
    informative = int(np.sum(np.abs(means - np.median(means)) > 1e-12)) if members else 0
    return MemberCredits(members, means, informative, _variance_ratio([values[m] for m in members]))


def _cell_means(rollouts: Sequence[Rollout]) -> dict[tuple[str, str], float]:
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    for rollout in rollouts:
        assert rollout.credit is not None
        cells[rollout.provenance.context_id, rollout.provenance.example].append(rollout.credit)
    return {cell: float(np.mean(credits)) for cell, credits in cells.items()}


def _variance_ratio(groups: Sequence[Sequence[float]]) -> float:
    """One-way analysis of variance: between-member over within-member mean square (the F statistic)."""
    total = sum(len(g) for g in groups)
    within_freedom = total - len(groups)
    if len(groups) < 2 or within_freedom < 1:
        return float("nan")
    grand = sum(sum(g) for g in groups) / total
    between = sum(len(g) * (float(np.mean(g)) - grand) ** 2 for g in groups) / (len(groups) - 1)
    within = sum(float(np.var(g)) * len(g) for g in groups) / within_freedom
    scale = max(abs(credit) for group in groups for credit in group)
    return between / within if within > (TIE * scale) ** 2 else float("nan")
