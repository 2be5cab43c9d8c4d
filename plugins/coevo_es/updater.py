"""The evolution strategy as ask/tell over seeds and numbers; only engines own tensors.

    theta += alpha / G · Σ R_hat_i · eps_i        (no division by sigma)

ES at Scale (arXiv 2509.24372) and Agentic ESOpt (arXiv 2608.17310); design section 4. G counts the members
with at least one scored rollout; the others have coefficient 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from coevo import Batch, Buffer, Perturbation, SeedsUpdate, Services
from coevo.numerics.credit import MemberCredits, member_credits
from coevo.numerics.seeds import noise_seed
from coevo.numerics.shaping import Shaping, shape
from coevo.records import Json
from coevo_es.schedules import Schedule, scheduled

# Measured on SmolLM2-135M (docs/choosing-sigma-and-alpha.md): from sigma 5e-3 on the members differ by more than
# sampling noise, and their answers are as good as the centre's up to 1e-2. The paper's (sigma 1e-3, alpha 5e-4, one
# answer a member, for 4B to 8B models) do nothing visible to it.
POPULATION = 16
ANSWERS = 8
SIGMA = 5e-3
ALPHA = 1e-2
MIN_MOVED = 0.01

TRAINING_SIGMA_END = 0.25
"""sigma_end / sigma where nothing is given and the weights are trained rather than searched with."""

TIE_DIGITS = 12
"""Credits that agree to this many digits of the largest are equal: the rest is the order of summation."""

EQUAL = "all credits are equal"

Positive: TypeAlias = Annotated[int, Field(ge=1)]
Size: TypeAlias = Annotated[float, Field(ge=0.0, le=1000.0, allow_inf_nan=False)]
"""In units of the weights, which are far below 1: beyond this nothing is left of a model, and 32-bit numbers end."""
AlphaSchedule: TypeAlias = Literal["constant", "sigma"]


class EvolutionStrategy:
    """Evolution strategies on all weights: members are noise seeds, an update is seeds and coefficients.

    Usage::

        members = es.ask(batch)      # (population,) perturbations
        update = es.tell(buffer)     # their rollouts → seeds and coefficients

    Args:
        services: root seed, place in the run and progress.
        population: members per adapting batch; even where `antithetic`.
        answers: rollouts per member in `zip` batches.
        sigma: standard deviation of the perturbation at the start, in units of the weights.
        sigma_end: sigma at the end of the run; None: 0 for `zip` batches (test-time search), sigma/4 for
            `cross` batches (training).
        sigma_schedule: `constant`, `linear` or `cosine` from sigma to sigma_end.
        warmup: share of the run that holds `sigma`.
        alpha: step size at the start; z-scored credits move each weight by about alpha/sqrt(population).
        alpha_schedule: `constant` (paper), `sigma` (alpha·sigma_t/sigma_0); None: `sigma` where sigma_end
            is 0, so that the step fades with what it was measured at, else `constant`.
        shaping: `zscore` (paper), `centered_rank`, `max_seeking` or `none`.
        antithetic: members 2k and 2k + 1 share noise k with signs + and −.
        common_random_numbers: None: sampling seeds are common to the members in `cross` batches only.
        min_moved: share of sampled weights whose served value must differ from the centre's; below it the
            perturbation is rounded away and the update is zero.

    Raises:
        ValueError: a single member, or an odd population with `antithetic`.
    """

    needs = "adapts"

    def __init__(
        self,
        *,
        services: Services,
        population: Positive = POPULATION,
        answers: Positive = ANSWERS,
        sigma: Size = SIGMA,
        sigma_end: Size | None = None,
        sigma_schedule: Schedule = "cosine",
        warmup: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0,
        alpha: Size = ALPHA,
        alpha_schedule: AlphaSchedule | None = None,
        shaping: Shaping = "zscore",
        antithetic: bool = False,
        common_random_numbers: bool | None = None,
        min_moved: Annotated[float, Field(ge=0.0, le=1.0)] = MIN_MOVED,
    ) -> None:
        if population < 2:
            raise ValueError(
                f"population must be at least 2, got {population}: a single member has nothing to be compared"
                " with, so its shaped credit is always 0; to search without ES use --param none"
            )
        if antithetic and population % 2:
            raise ValueError(
                f"population must be even with antithetic pairs, got {population}; "
                f"use {population + 1} or es.antithetic=false"
            )
        self.population = population
        self.answers = answers
        self.common_random_numbers = common_random_numbers
        self._services = services
        self._sigma, self._sigma_end = sigma, sigma_end
        self._sigma_schedule: Schedule = sigma_schedule
        self._warmup = warmup
        self._alpha, self._alpha_schedule = alpha, alpha_schedule
        self._shaping: Shaping = shaping
        self._antithetic = antithetic
        self._min_moved = min_moved

    def ask(self, batch: Batch) -> list[Perturbation]:
        """The members of a batch, sigma signed. Asking twice gives the same members."""
        at = self._services
        sigma = scheduled(self._sigma_schedule, self._sigma, self._end(batch), at.progress(), self._warmup)

        def member(index: int) -> Perturbation:
            noise, sign = (index // 2, 1 - 2 * (index % 2)) if self._antithetic else (index, 1)
            return Perturbation(noise_seed(at.root_seed, at.generation, at.batch, noise), sign * sigma)

        return [member(index) for index in range(self.population)]

    def tell(self, buffer: Buffer) -> SeedsUpdate:
        """The update that a batch teaches; one without terms says in `reason` why it is zero."""
        reduced = member_credits(buffer)
        raw = [r.credit for r in buffer.rollouts if r.credit is not None and r.provenance.member is not None]
        means = _settled(reduced.means, raw)
        sigma = max((abs(member.sigma) for member in buffer.members), default=0.0)
        alpha = self._step_size(sigma, buffer.batch)
        metrics = self._metrics(buffer, reduced, means, raw)
        metrics |= {"sigma": sigma, "alpha": alpha}
        if reason := self._why_zero(sigma, alpha, buffer.moved, means):
            if reason == EQUAL and all(rollout.return_ is None for rollout in buffer.rollouts):
                reason += ": no answer was valid"
            return SeedsUpdate((), reason=reason, metrics=metrics)
        shaped = shape(self._shaping, means)
        scored = [buffer.members[index] for index in reduced.members]
        terms = _terms(scored, shaped * (alpha / len(scored)))
        nothing = (
            "the two members of every pair scored the same" if self._antithetic else "the step is below 32-bit numbers"
        )
        reason = "" if terms else nothing
        return SeedsUpdate(terms, reason=reason, metrics=metrics)

    def state_dict(self) -> Json:
        """Empty: seeds and schedules are functions of where the run is, which the journal knows."""
        return {}

    def load_state_dict(self, state: Json) -> None:
        """Nothing to restore."""

    def _end(self, batch: Batch) -> float:
        if self._sigma_end is not None:
            return self._sigma_end
        return 0.0 if batch.pairing == "zip" else self._sigma * TRAINING_SIGMA_END

    def _step_size(self, sigma: float, batch: Batch) -> float:
        kind = self._alpha_schedule or ("sigma" if self._end(batch) == 0.0 else "constant")
        if kind == "constant" or self._sigma == 0.0:
            return self._alpha
        return self._alpha * (sigma / self._sigma)

    def _why_zero(self, sigma: float, alpha: float, moved: float | None, means: NDArray[np.float64]) -> str:
        if sigma == 0.0:
            return "sigma is 0"
        if alpha == 0.0:
            return "alpha is 0"
        if moved is not None and moved < self._min_moved:
            return (
                f"the perturbation is rounded away: it changes {100.0 * moved:.2f} % of the served weights, "
                f"less than min_moved {100.0 * self._min_moved:.2f} %"
            )
        if len(means) == 0:
            return "no member has a scored rollout"
        if len(means) == 1:
            return "only one member has a scored rollout"
        return EQUAL if np.max(means) == np.min(means) else ""

    def _metrics(
        self, buffer: Buffer, reduced: MemberCredits, means: NDArray[np.float64], raw: Sequence[float]
    ) -> dict[str, float]:
        """For the journal and the screen: JSON has no nan, so what cannot be told is left out."""
        metrics: dict[str, float] = {
            "informative": float(reduced.informative),
            "members_scored": float(len(reduced.members)),
        }
        if raw:
            with np.errstate(over="ignore", invalid="ignore"):
                moments = {"credit_mean": float(np.mean(raw)), "credit_std": float(np.std(means))}
            metrics |= {name: value for name, value in moments.items() if math.isfinite(value)}
        if math.isfinite(reduced.variance_ratio):
            metrics["variance_ratio"] = reduced.variance_ratio
        if buffer.moved is not None:
            metrics["moved"] = buffer.moved
        return metrics


def _settled(means: NDArray[np.float64], raw: Sequence[float]) -> NDArray[np.float64]:
    """Member means (members,) without the rounding of their summation.

    Ranks would blow a difference in the 16th digit up to a full step.
    """
    largest = max((abs(credit) for credit in raw), default=0.0)
    return np.round(means / largest, TIE_DIGITS) * largest if largest > 0.0 else means


def _terms(members: Sequence[Perturbation], coefficients: NDArray[np.float64]) -> tuple[tuple[int, float], ...]:
    """One (seed, coefficient) per noise, in member order.

    A pair's two coefficients merge before rounding to float32, the precision in which engines apply them:
    the journal then holds exactly the numbers applied. Zeros are left out.
    """
    merged: dict[int, float] = {}
    for member, coefficient in zip(members, coefficients, strict=True):
        merged[member.seed] = merged.get(member.seed, 0.0) + math.copysign(1.0, member.sigma) * coefficient
    rounded = {seed: float(np.float32(coefficient)) for seed, coefficient in merged.items()}
    return tuple((seed, coefficient) for seed, coefficient in rounded.items() if coefficient != 0.0)
