"""Sample: draw programs from the task's own prompt, without parents and without memory.

The baseline of Zhang et al. (arXiv 2407.10873) and Agentic ESOpt (arXiv 2608.17310). Every draw counts,
failed ones too. The credit is our own: the paper's (the negated objective) is dominated by the heavy tail of
bad programs, and a z-score over it teaches nothing visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import Field

from coevo import Batch, Brief, Buffer, Context, Services
from coevo.buffer import with_credits
from coevo.records import Json
from coevo.shaping import bounded_credit, bounded_ranks

BATCH = 20


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
        batch takes its place.
        """
        returns = [rollout.return_ for rollout in buffer.rollouts]
        if self._baseline:
            return with_credits(buffer, [bounded_credit(value, self._baseline) for value in returns])
        return with_credits(buffer, bounded_ranks(returns))

    def tell(self, buffer: Buffer) -> None:
        """Remember nothing; this generation is done. The run itself keeps the best program."""
        self._finished = self._services.generation

    def state_dict(self) -> Json:
        """The last finished generation."""
        return {"finished": self._finished}

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`."""
        self._finished = int(cast(Mapping[str, Any], state)["finished"])
