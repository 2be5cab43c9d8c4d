"""From rollouts to one number a member: default credits, centring, means and variances."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coevo.numerics.shaping import Floats
from coevo.records import EXCLUDED, Buffer, Rollout

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
        # Below the least number that there is, there is none.
        worth = max(min(valid) - (_deviation(valid) if _differ(valid) else 1.0), -sys.float_info.max)
    else:
        worth = 0.0
    return with_credits(buffer, [worth if r.return_ is None else r.return_ for r in buffer.rollouts])


def _differ(values: Sequence[float]) -> bool:
    """Whether values differ by more than the rounding of their summation."""
    return max(values) - min(values) > TIE * max(abs(value) for value in values)


def _deviation(values: Sequence[float]) -> float:
    scale = max(abs(value) for value in values)
    return float(np.std(np.asarray(values) / scale)) * scale


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
    into the members, and per sampling seed where the members have seeds in common: what a stream of random
    numbers is worth to all of them is no difference between them. `zip` batches are centred the same way only
    where all members are asked the same; otherwise their credit carries its own reference (see `Credits`).
    """
    scored = [r for r in buffer.rollouts if r.credit is not None and r.provenance.member is not None]
    shared = buffer.batch.pairing == "cross" or _asked_the_same(buffer)
    cells = _cells(scored) if shared else [0] * len(scored)
    offsets = _means(cells, scored) if shared else {0: 0.0}
    values: dict[int, list[float]] = defaultdict(list)
    for rollout, cell in zip(scored, cells, strict=True):
        member = rollout.provenance.member
        assert rollout.credit is not None
        assert member is not None
        values[member].append(rollout.credit - offsets[cell])
    members = tuple(sorted(values))
    means = np.array([np.mean(values[m]) for m in members], dtype=np.float64)
    informative = int(np.sum(np.abs(means - np.median(means)) > 1e-12)) if members else 0
    return MemberCredits(members, means, informative, _variance_ratio([values[m] for m in members], len(offsets)))


def _asked_the_same(buffer: Buffer) -> bool:
    """Whether every member has the same (context, example) as often, failures of the engine included."""
    asked: dict[int | None, Counter[tuple[str, str]]] = defaultdict(Counter)
    for rollout in buffer.rollouts:
        p = rollout.provenance
        asked[p.member][p.context_id, p.example] += 1
    hands = list(asked.values())
    return all(hand == hands[0] for hand in hands)


def _cells(rollouts: Sequence[Rollout]) -> list[int]:
    """A number for each rollout, equal where rollouts answer the same (context, example) with the same seed."""
    keys = [(r.provenance.context_id, r.provenance.example, r.provenance.sampling_seed) for r in rollouts]
    counts = Counter(keys)
    if any(counts[key] == 1 for key in keys):  # members have no seeds in common
        keys = [(context, example, 0) for context, example, _ in keys]
    numbers: dict[tuple[str, str, int], int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _means(cells: Sequence[int], rollouts: Sequence[Rollout]) -> dict[int, float]:
    credits: dict[int, list[float]] = defaultdict(list)
    for cell, rollout in zip(cells, rollouts, strict=True):
        assert rollout.credit is not None
        credits[cell].append(rollout.credit)
    return {cell: float(np.mean(values)) for cell, values in credits.items()}


def _variance_ratio(groups: Sequence[Sequence[float]], cells: int) -> float:
    """Analysis of variance: between-member over within-member mean square (the F statistic).

    The values are centred per cell, which takes one degree of freedom for every cell but one.
    """
    total = sum(len(g) for g in groups)
    within_freedom = total - len(groups) - max(cells - 1, 0)
    if len(groups) < 2 or within_freedom < 1:
        return float("nan")
    largest = max(abs(credit) for group in groups for credit in group)
    if not largest:
        return float("nan")
    # Squares of huge credits have no number; a power of two changes no digit.
    scaled = [np.ldexp(np.asarray(g), -math.frexp(largest)[1]) for g in groups]
    grand = sum(float(g.sum()) for g in scaled) / total
    between = sum(len(g) * (float(g.mean()) - grand) ** 2 for g in scaled) / (len(scaled) - 1)
    within = sum(float(g.var()) * len(g) for g in scaled) / within_freedom
    return between / within if within > TIE**2 else float("nan")
