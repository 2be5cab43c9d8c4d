"""From measurements to sigma, alpha, population and answers: the rules, and nothing else.

    gain  = (alpha / sigma) · b · sqrt(rho)        first order, in credit an update
    alpha = sigma · sqrt(population) / 2

An update is alpha/G Σ z_i eps_i. A member's true credit is, to first order, b times a standard normal number that
its noise decides, and correlates with its z-score by sqrt(rho), rho being the reliability; hence the gain. The random
part of the update has size alpha/sqrt(G) a weight: by the rule half of a member's, from where its slope was measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from coevo.records import Json
from coevo.report.numbers import number, percent
from coevo.tools.tune.statistics import Spread

LEAST_ANSWERS, MOST_ANSWERS = 4, 64
RELIABILITY = 0.5
"""Enough: half of the variance of the members' means is real."""

DAMAGE = 0.1
"""Share of the centre's mean credit that the members may lose."""

STEP = 0.5
"""Size of an update's random part, in units of a member's."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """What the configuration says of the parameter updater `name`."""

    name: str
    sigma: float
    population: int
    min_moved: float
    common: bool

    @property
    def ratio(self) -> float:
        """How many sigmas alpha is."""
        return STEP * math.sqrt(self.population)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured at one sigma.

    Attributes:
        moved: share of sampled weights that a member changes, None where unknown.
        valid, credit: share of valid answers and mean credit of all members.
        centre_credit: of the centre, by the same measure but on more questions.
        change, change_margin: what the members lose or gain against the centre, and half of the 95 % interval.
        equal: share of the pairs of members that answer a question in the same words.
    """

    sigma: float
    moved: float | None
    valid: float
    credit: float
    centre_credit: float
    change: float
    change_margin: float
    spread: Spread
    equal: float
    calls: int
    tokens: int
    seconds: float

    def reliability(self, strategy: Strategy, answers: int | None = None) -> float:
        """Of the members' means, with common random numbers unless the configuration is against them."""
        return self.spread.reliability(answers, strategy.common)

    def gain(self, strategy: Strategy, answers: int | None = None) -> float:
        """Expected gain of one update, in credit."""
        return strategy.ratio * self.spread.between * math.sqrt(self.reliability(strategy, answers))

    def obstacle(self, strategy: Strategy) -> str:
        """Why ES should not use this sigma: `rounded away`, `all equal`, `noise`, `damage`, or empty."""
        if self.moved is not None and self.moved < strategy.min_moved:
            return "rounded away"
        if math.isnan(self.spread.f):
            return "all equal"
        if not self.spread.separates:
            return "noise"
        return "damage" if self.change + self.change_margin < -DAMAGE * abs(self.centre_credit) else ""


def choose(findings: Sequence[Finding], strategy: Strategy) -> Finding | None:
    """The sigma with the largest expected gain that nothing speaks against."""
    able = [finding for finding in findings if not finding.obstacle(strategy)]
    return max(able, key=lambda finding: finding.gain(strategy), default=None)


def enough_answers(finding: Finding, common: bool) -> int:
    """Smallest power of two whose reliability is enough, within the bounds."""
    answers = LEAST_ANSWERS
    while answers < MOST_ANSWERS and finding.spread.reliability(answers, common) < RELIABILITY:
        answers *= 2
    return answers


def propose(finding: Finding, strategy: Strategy) -> dict[str, Json]:
    """Sizes for a run, what they promise, and the answers that it would take without common random numbers."""
    answers = enough_answers(finding, strategy.common)
    return {
        "sigma": finding.sigma,
        "alpha": float(f"{finding.sigma * strategy.ratio:.3g}"),
        "population": strategy.population,
        "answers": answers,
        "common_random_numbers": strategy.common,
        "reliability": finding.reliability(strategy, answers),
        "gain": finding.gain(strategy, answers),
        "answers_without_common_random_numbers": enough_answers(finding, False),
    }


def verdict(findings: Sequence[Finding], strategy: Strategy) -> str:
    """What the measurements say, in a line."""
    chosen = choose(findings, strategy)
    if chosen is None:
        return _why_none(findings, strategy)
    said = [
        f"sigma {number(chosen.sigma)} has the largest expected gain of those that separate members "
        f"without costing them more than {percent(DAMAGE)} of their credit"
    ]
    answers = enough_answers(chosen, strategy.common)
    if chosen.reliability(strategy, answers) < RELIABILITY:
        said.append(f"even {answers} answers a member leave their ranking more luck than truth")
    if chosen is findings[-1] and len(findings) > 1:
        said.append(f"it is the largest that was tried: also try --sigmas {_larger(chosen.sigma)}")
    return "; ".join(said)


def _why_none(findings: Sequence[Finding], strategy: Strategy) -> str:
    obstacles = [finding.obstacle(strategy) for finding in findings]
    if "damage" in obstacles:
        least = next(f.sigma for f, obstacle in zip(findings, obstacles, strict=True) if obstacle == "damage")
        return (
            f"every sigma that separates members costs them more than {percent(DAMAGE)} of their credit; "
            f"try --sigmas below {number(least)} with more --answers"
        )
    if set(obstacles) == {"rounded away"}:
        least = percent(strategy.min_moved, 1)
        return f"every sigma is rounded away, moving less than {least} of the served weights; try larger --sigmas"
    if "noise" not in obstacles:
        valid = percent(findings[-1].valid)
        return f"all members have equal credit at every sigma ({valid} valid): there is no difference to learn from"
    return (
        "no sigma separates members: their differences may be luck (every F interval reaches down to 1); raise "
        f"--answers (here {findings[0].spread.answers}) or --members (here {findings[0].spread.members}), "
        "or try larger --sigmas"
    )


def _larger(sigma: float) -> str:
    return f"{sigma:g},{2.0 * sigma:g},{4.0 * sigma:g}"
