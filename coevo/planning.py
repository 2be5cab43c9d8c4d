"""What a batch will cost and which chunks it is made of, before any of it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coevo.errors import PluginError, UserError
from coevo.interfaces import Brief, Engine, Task
from coevo.records import Batch, Example, Perturbation, Sampling
from coevo.rollouts import PlanSettings, Prepared, plan
from coevo.services import RunServices

__all__ = ["Planner", "Prepared", "a_batch"]


def a_batch(asked: object) -> Batch | None:
    """What `ask()` gave, if it is a batch or None.

    Raises:
        PluginError: it is something else; a stranger's updater is not type-checked.
    """
    if asked is None or isinstance(asked, Batch):
        return asked
    raise PluginError(
        f"the context updater's ask() gave {asked!r}; expected a coevo.Batch, or None to end a generation"
    )


@dataclass(slots=True)
class Planner:
    """Turns batches into plans and holds the budget against them.

    Attributes:
        answers, common: of the parameter updater.
        credits: whether the context updater brings its own `credit`.
        chunk: requests a chunk.
    """

    task: Task
    brief: Brief
    engine: Engine
    services: RunServices
    sampling: Sampling
    answers: int
    common: bool | None
    credits: bool
    chunk: int
    examples: dict[str, Sequence[Example]] = field(default_factory=dict[str, Sequence[Example]])

    def prepare(self, batch: Batch, members: tuple[Perturbation, ...]) -> Prepared:
        """The plan of a batch.

        Raises:
            UserError: members would be compared by the contexts that they happened to get.
        """
        varied = len({context.id for context in batch.contexts}) > 1
        if members and batch.pairing == "zip" and varied and not self.credits:
            raise UserError(
                "the context updater deals different contexts to the members (pairing 'zip') but has no credit(), "
                "so members would be compared by the contexts they got; give it a credit(), or use --param none"
            )
        s = self.services
        settings = PlanSettings(s.root_seed, s.generation, s.batch, self.answers, self.common, self.chunk)
        examples = self._examples(batch)
        return Prepared(batch, members, examples, settings, plan(batch, examples, len(members), settings))

    def _examples(self, batch: Batch) -> Sequence[Example]:
        if batch.split not in self.examples:
            self.examples[batch.split] = self.task.examples(batch.split)
        every = self.examples[batch.split]
        chosen = every if batch.examples is None else [e for e in every if e.id in batch.examples]
        if not chosen:
            raise UserError(f"the batch asks for no example of split {batch.split!r} that exists")
        return chosen

    def refusal(self, prepared: Prepared) -> str:
        """Which hard budget (`calls`, `tokens`) the batch could break at most, or empty."""
        calls = prepared.size * self.brief.max_calls
        return self.services.budget.refuses(self.services.ledger, calls, lambda: self._most_tokens(prepared))

    def _most_tokens(self, prepared: Prepared) -> int:
        count = getattr(self.engine, "count_tokens", None)
        if count is None or self.brief.max_calls > 1:
            raise UserError(
                "--tokens needs an engine that counts tokens and a task of one call an episode; use --calls instead"
            )
        most = 0
        for cell in (cell for chunk in prepared.chunks for cell in chunk.cells):
            episode = self.task.episode(prepared.examples[cell.example], prepared.batch.contexts[cell.context])
            most += sum(
                count(request) + (request.sampling or self.sampling).max_new_tokens for request in episode.requests()
            )
        return most
