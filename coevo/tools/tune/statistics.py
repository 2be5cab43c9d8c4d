"""How much of the members' differences is real: an analysis of variance of members × questions.

A *question* is an example with a sampling seed; with common random numbers every member answers the same ones, so
that credit = mean + member + question + residual, and what a question is worth to all members is no difference
between them. `coevo.numerics.credit.member_credits` centres the same way; here the parts are told apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from coevo.numerics.credit import TIE
from coevo.numerics.shaping import Floats

CONFIDENCE = 0.95

DRAWS = 200_000
"""Draws for the quantiles of the F distribution; their relative error is below 2 % at 12 members × 16 answers."""

TWO_SIDED = 1.96
"""Normal quantile of a two-sided interval of 95 %."""


@dataclass(frozen=True, slots=True)
class Spread:
    """What the credits of members vary by; standard deviations, in units of credit.

    Attributes:
        members, answers: how many of each were compared.
        between: of the members' true mean credits.
        within: of one answer around its member's and its question's mean.
        shared: of what a question is worth to all members; without common random numbers it adds to `within`.
        f: between-member over residual mean square, 1 for nothing but noise; inf where there is no residual, nan
            where all members are equal.
        f_interval: of the true ratio, 1 + answers·between²/within²; holds 1 where members cannot be told apart.
    """

    members: int
    answers: int
    between: float
    within: float
    shared: float
    f: float
    f_interval: tuple[float, float]

    @property
    def separates(self) -> bool:
        """Whether the members differ by more than sampling noise explains."""
        return self.f_interval[0] > 1.0

    def noise(self, common: bool = True) -> float:
        """Standard deviation of one answer around its member, with or without common random numbers."""
        return self.within if common else math.hypot(self.within, self.shared)

    def reliability(self, answers: int | None = None, common: bool = True) -> float:
        """Share of the variance of member means that is real, b²/(b² + w²/answers); 0 where nothing differs.

        Args:
            answers: a member; None: as many as were measured.
            common: whether random numbers are common to the members.
        """
        real = self.between**2
        noise = self.noise(common) ** 2 / (answers or self.answers)
        return real / (real + noise) if real > 0.0 else 0.0


def spread(credits: Floats, confidence: float = CONFIDENCE) -> Spread:
    """Split the variance of `credits` (members, answers), both at least 2, in column order of the questions."""
    members, answers = credits.shape
    freedom = (members - 1, (members - 1) * (answers - 1))
    rows, columns, grand = credits.mean(1, keepdims=True), credits.mean(0, keepdims=True), credits.mean()
    # What summation rounds is no difference.
    least = (TIE * float(np.abs(credits).max())) ** 2
    between = _square(answers * float(((rows - grand) ** 2).sum()) / freedom[0], least)
    residual = _square(float(((credits - rows - columns + grand) ** 2).sum()) / freedom[1], least)
    question = members * float(((columns - grand) ** 2).sum()) / (answers - 1)
    f = between / residual if residual else (math.inf if between else math.nan)
    low, high = f_quantiles(*freedom, confidence)
    return Spread(
        members,
        answers,
        between=math.sqrt(max(between - residual, 0.0) / answers),
        within=math.sqrt(residual),
        shared=math.sqrt(max(question - residual, 0.0) / members),
        f=f,
        f_interval=(f / high, f / low),
    )


def _square(value: float, least: float) -> float:
    return value if value > least else 0.0


@lru_cache(maxsize=64)
def f_quantiles(first: int, second: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The two quantiles of F(first, second) between which it lies with `confidence`, from fixed draws."""
    rng = np.random.default_rng(0)
    draws = (rng.chisquare(first, DRAWS) / first) / (rng.chisquare(second, DRAWS) / second)
    low, high = np.quantile(draws, [(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    return float(low), float(high)


def change(credits: Floats, centre: Floats, wide: Floats, between: float) -> tuple[float, float]:
    """(mean credit of the members less the centre's, half of its 95 % interval).

    Where members still answer as the centre does, the questions that both answered are compared one by one; where they
    do not, with what the centre is worth on more questions, since its luck with a few is no merit. The slope of the
    members on the centre, question by question, says how much of either (a control variate).

    Args:
        credits: (members, answers).
        centre: (answers,), of the same questions.
        wide: (more,), of the centre, of these questions and others.
        between: standard deviation of the members' true means.
    """
    members, answers = credits.shape
    columns = credits.mean(0)
    varies = float(centre.var(ddof=1))
    together = float(np.cov(columns, centre)[0, 1])
    slope = min(max(together / varies, 0.0), 1.0) if varies > 0.0 else 0.0
    rest = columns - slope * centre
    difference = float(rest.mean()) - (1.0 - slope) * float(wide.mean())
    lucky = float(rest.var(ddof=1)) / answers + (1.0 - slope) ** 2 * float(wide.var(ddof=1)) / wide.size
    return difference, TWO_SIDED * math.sqrt(lucky + between**2 / members)
