"""Sample: draw programs from the task's own prompt, without parents and without memory.

The baseline of Zhang et al. (arXiv 2407.10873) and Agentic ESOpt (arXiv 2608.17310). Every draw counts,
failed ones too. The credit is our own: the paper's (the negated objective) is dominated by the heavy tail of
bad programs, and a z-score over it teaches nothing visible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import Field

from coevo import Batch, Brief, Buffer, Context, Services
from coevo.numerics.credit import default_credit, with_credits
from coevo.numerics.shaping import bounded_credit, bounded_ranks
from coevo.records import Json

BATCH = 20

Credit: TypeAlias = Literal["baseline", "best", "return"]


class Sample:
    """Independent draws from the task's prompt, one batch a generation.

    Args:
        services: place in the run, and how many answers an adapting batch needs.
        brief: prompt, direction and baseline.
        batch: answers a generation where nothing adapts, the last one fewer where a budget of calls has no room for
            as many; ES needs population × answers instead.
        credit: what the weights learn from an answer: its gain over the problem's `baseline`, or over the `best` that
            the prompt had before (over the baseline until it had any); `return` is the paper's, the objective itself,
            with a failure one standard deviation below the worst valid answer.

    Raises:
        ValueError: the task is no program search.
    """

    adapting_batches = 1
    sized_by = "sample.batch"

    def __init__(
        self,
        *,
        services: Services,
        brief: Brief,
        batch: Annotated[int, Field(ge=1, le=1_000_000)] = BATCH,
        credit: Credit = "baseline",
    ) -> None:
        if brief.hole == "none":
            raise ValueError(
                f"task {brief.name!r} is no program search (its brief says hole 'none'); use --context none"
            )
        if "prompt" not in brief.components:
            raise ValueError(f"task {brief.name!r} gives no prompt: Brief.components needs the key 'prompt'")
        self._services = services
        self._context = Context(dict(brief.components), operator="i1")
        self._batch, self._calls = batch, brief.max_calls
        self._credit: Credit = credit
        self._baseline = brief.baseline_return()
        self._best: float | None = None  # return of the best answer so far, where the credit needs it
        self._finished = -1

    def ask(self) -> Batch | None:
        """This generation's draws, then None."""
        if self._finished == self._services.generation:
            return None
        # Where members are dealt answers, their number is the parameter updater's.
        samples = 1 if self._services.batch_answers else self._draws()
        return Batch((self._context,), "zip", samples=samples, operator="i1")

    def _draws(self) -> int:
        """A whole batch, or as many draws as there are calls for; without any a whole batch, which ends the run."""
        left = self._services.calls_left
        return self._batch if left is None else min(self._batch, left // self._calls) or self._batch

    def credit(self, buffer: Buffer) -> Buffer:
        """Bounded credit: 0 for a failure, else 0.3 to 1.0, linear in the gain on either side of the reference.

        Where there is none (or it is 0, so that gains have no unit), the average rank within the batch takes its
        place.
        """
        if self._credit == "return":
            return default_credit(buffer, "below")
        returns = [rollout.return_ for rollout in buffer.rollouts]
        if reference := self._baseline if self._best is None else self._best:
            return with_credits(buffer, [bounded_credit(value, reference) for value in returns])
        return with_credits(buffer, bounded_ranks(returns))

    def tell(self, buffer: Buffer) -> None:
        """This generation is done; nothing is remembered of it but the best return, where the credit needs it.

        The run itself keeps the best program.
        """
        self._finished = self._services.generation
        if self._credit == "best":
            valid = [rollout.return_ for rollout in buffer.rollouts if rollout.return_ is not None]
            self._best = max([*valid, *([] if self._best is None else [self._best])], default=None)

    def state_dict(self) -> Json:
        """The last finished generation, and the best return where the credit needs it."""
        return {"finished": self._finished} | ({"best": self._best} if self._credit == "best" else {})

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`."""
        saved = cast(Mapping[str, Any], state)
        self._finished = int(saved["finished"])
        self._best = None if saved.get("best") is None else float(saved["best"])
