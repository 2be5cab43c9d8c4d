"""Sample: draw programs from the task's own prompt, without parents and without memory.

The baseline of Zhang et al. (arXiv 2407.10873) and Agentic ESOpt (arXiv 2608.17310). Every draw counts,
failed ones too. The credit is our own: the paper's (the negated objective) is dominated by the heavy tail of
bad programs, and a z-score over it teaches nothing visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

import numpy as np
from pydantic import Field

from coevo import Batch, Brief, Buffer, Context, Rollout, Services
from coevo.buffer import with_credits
from coevo.records import Json
from coevo.shaping import average_ranks

BATCH = 20

FAILURE = 0.0
"""Credit of a draw that is no valid program."""

LOWEST, HIGHEST = 0.4, 1.0
"""Credits of the worst and of the best valid program."""

BEST_GAIN, WORST_GAIN = 0.15, -0.5
"""Gains over the baseline, as a share of its value, from which credit is `HIGHEST` and `LOWEST`."""


class Sample:
    """Independent draws from the task's prompt, one batch a generation.

    Args:
        services: place in the run, and how many answers an adapting batch needs.
        brief: prompt, direction and baseline.
        batch: answers a generation where nothing adapts; ES needs population × answers instead.

    Raises:
        ValueError: the task is no program search.
    """

    adapting_batches = 1

    def __init__(self, *, services: Services, brief: Brief, batch: Annotated[int, Field(ge=1)] = BATCH) -> None:
        if brief.hole == "none":
            raise ValueError(
                f"task {brief.name!r} is no program search (its brief says hole 'none'); use --context none"
            )
        if "prompt" not in brief.components:
            raise ValueError(f"task {brief.name!r} gives no prompt: Brief.components needs the key 'prompt'")
        self._services = services
        self._context = Context(dict(brief.components), operator="i1")
        self._batch = batch
        baseline = brief.baseline()
        sign = -1.0 if brief.direction == "minimize" else 1.0
        self._baseline = None if baseline is None else sign * baseline.value
        self._finished = -1

    def ask(self) -> Batch | None:
        """This generation's draws, then None."""
        if self._finished == self._services.generation:
            return None
        # Where members are dealt answers, their number is the parameter updater's.
        samples = 1 if self._services.batch_answers else self._batch
        return Batch((self._context,), "zip", samples=samples, operator="i1")

    def credit(self, buffer: Buffer) -> Buffer:
        """Bounded credit: 0 for a failure, else 0.4 to 1.0, linear in the gain over the baseline.

        Where there is no baseline (or it is 0, so that gains have no unit), the average rank within the
        batch takes its place. Bounds keep one terrible program from drowning the differences of all others.
        """
        if self._baseline:
            return with_credits(buffer, [self._against(self._baseline, r) for r in buffer.rollouts])
        return with_credits(buffer, _by_rank(buffer.rollouts))

    def _against(self, baseline: float, rollout: Rollout) -> float:
        if rollout.return_ is None:
            return FAILURE
        gain = (rollout.return_ - baseline) / abs(baseline)
        share = (gain - WORST_GAIN) / (BEST_GAIN - WORST_GAIN)
        return LOWEST + (HIGHEST - LOWEST) * min(max(share, 0.0), 1.0)

    def tell(self, buffer: Buffer) -> None:
        """Remember nothing; this generation is done. The run itself keeps the best program."""
        self._finished = self._services.generation

    def state_dict(self) -> Json:
        """The last finished generation."""
        return {"finished": self._finished}

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`."""
        self._finished = int(cast(Mapping[str, Any], state)["finished"])


def _by_rank(rollouts: tuple[Rollout, ...]) -> list[float]:
    """Average ranks of the valid returns, scaled into [LOWEST, HIGHEST]; a lone one gets the middle."""
    valid = np.array([r.return_ for r in rollouts if r.return_ is not None], dtype=np.float64)
    if valid.size == 0:
        return [FAILURE] * len(rollouts)
    shares = average_ranks(valid) / (valid.size - 1) if valid.size > 1 else np.array([0.5])
    scaled = iter((LOWEST + (HIGHEST - LOWEST) * shares).tolist())
    return [FAILURE if r.return_ is None else next(scaled) for r in rollouts]
