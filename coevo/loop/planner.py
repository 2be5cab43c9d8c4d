"""What a batch will cost and which chunks it is made of, before any of it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from coevo.errors import CoevoError, PluginError, UserError
from coevo.host.faults import told
from coevo.interfaces import Brief, Engine, Task
from coevo.loop.budget import Tries, key
from coevo.loop.plan import MOST_ANSWERS, Plan, PlanSettings, Prepared, choose, load_examples
from coevo.loop.services import RunServices
from coevo.numerics.seeds import derive
from coevo.optional import CountsTokens, drives_itself, offers
from coevo.records import Batch, Context, Example, Perturbation, Request, Sampling
from coevo.reports import Ledger

__all__ = ["Planner", "Prepared"]

NOT_COUNTED = "--tokens needs an engine that counts tokens and a task of one call an episode; use --calls instead"
PROBE = "probe"
PROBE_EVERY = 5
"""Generations between probes where the weights are trained and nothing is said."""
PROBES_FIT = 8
"""Probes that a budget must have room for before it is spent on any, where nothing is said."""

Costs: TypeAlias = list[tuple[str, tuple[int, int]]]
"""(key, (tokens of the prompt, of the answer at most)) of each request."""


@dataclass(slots=True)
class Planner:
    """Turns batches into plans and holds the budget against them.

    Attributes:
        answers, common: of the parameter updater.
        credits: whether the context updater brings its own `credit`.
        chunk: requests a chunk.
        probe_answers: see `coevo.host.config.ProbeConfig`.
        probed: places (generation, batch) that have their probe.
        probe_every: generations between probes, 0 is never.
        sized_by: the option of the context updater that makes a batch without members smaller.
        untrained: once a budget has refused a batch before the weights have learned from any: what to tell the user.
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
    probe_answers: int = 1
    probed: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    probe_every: int = 0
    sized_by: str = ""
    untrained: str = ""
    examples: dict[str, Sequence[Example]] = field(default_factory=dict[str, Sequence[Example]])

    def prepare(self, batch: Batch, members: tuple[Perturbation, ...]) -> Prepared:
        """The plan of a batch.

        Raises:
            UserError: members would be compared by the contexts that they happened to get.
            PluginError: the batch asks for examples that it may not have or that do not exist, or for too many answers.
        """
        varied = len({context.id for context in batch.contexts}) > 1
        if members and batch.pairing == "zip" and varied and not self.credits:
            raise UserError(
                "the context updater deals different contexts to the members (pairing 'zip') but has no credit(), "
                "so members would be compared by the contexts they got; give it a credit(), or use --param none"
            )
        s = self.services
        settings = PlanSettings(
            root_seed=s.root_seed,
            generation=s.generation,
            batch=s.batch,
            answers=self.answers,
            common=self.common,
            chunk=self.chunk,
        )
        examples = self._examples(batch)
        chunks = Plan(batch, examples, len(members), settings)
        if chunks.size > MOST_ANSWERS:
            raise PluginError(f"a batch asks for {chunks.size:,} answers; expected at most {MOST_ANSWERS:,}")
        return Prepared(batch, members, examples, settings, chunks)

    def prepare_probe(self) -> Prepared:
        """The probe at this place of the run: the centre, the task's own text, the same seeds every time."""
        s = self.services
        context = Context(dict(self.brief.components), operator=PROBE)
        every = self._examples(Batch((context,)))
        count = min(len(every), self.probe_answers)
        chosen = [every[i * len(every) // count] for i in range(count)]
        samples = max(1, self.probe_answers // len(chosen))
        batch = Batch((context,), samples=samples, adapt=False, operator=PROBE, purpose="probe")
        fixed = PlanSettings(derive(s.root_seed, PROBE), 0, 0, chunk=self.chunk)
        here = PlanSettings(s.root_seed, s.generation, s.batch, chunk=self.chunk)
        return Prepared(batch, (), chosen, here, Plan(batch, chosen, 0, fixed))

    def interval(self, asked: int | None, trains: bool) -> int:
        """Generations between probes.

        Where nobody chose it: none where nothing is trained, since all would be the same, and none where two of them
        would eat a quarter of a budget.
        """
        if asked is not None:
            return asked
        if not trains:
            return 0
        probe = self.prepare_probe()
        calls = PROBES_FIT * probe.size * self.brief.max_calls
        dear = self.services.budget.refuses(Ledger(), calls, lambda: PROBES_FIT * self._most_tokens(probe))
        return 0 if dear else PROBE_EVERY

    def probe_due(self, prepared: Prepared) -> bool:
        """Whether the centre is to be probed before this batch: it is time, and there is room beside the batch.

        What a kill cut off is not in the way here, or a resumed run would go on without a probe that it had begun, and
        with other numbers.
        """
        s = self.services
        if not self._unprobed or s.batch or s.generation % self.probe_every:
            return False
        return not self._refused([prepared, *self.reserve() * 2], s.ledger)

    def last_probe_due(self) -> bool:
        """Whether the centre is to be probed at the end of the run; a kill may have cost its place in the budget."""
        return self._unprobed and not self._refused(self.reserve(), self.services.spent(probe=True))

    @property
    def _unprobed(self) -> bool:
        return bool(self.probe_every) and (self.services.generation, self.services.batch) not in self.probed

    def _examples(self, batch: Batch) -> Sequence[Example]:
        if batch.split not in self.examples:
            self.examples[batch.split] = load_examples(self.task, batch.split)
        return choose(self.examples[batch.split], batch)

    def refusal(self, prepared: Prepared, probed: bool = False) -> str:
        """Which hard budget (`calls`, `tokens`) the batch could break at most, with a probe before it where it is.

        One probe is kept in reserve for the end of the run.

        Raises:
            UserError: nothing can be asked within the budget at all.
        """
        spent = self.services.spent(probed)
        reason = self._refused([prepared, *self.reserve() * (1 + probed)], spent)
        if reason and not spent.calls:
            raise UserError(self._too_small(reason, "the first batch", prepared))
        if reason and prepared.members and not self.services.adapted:
            self.untrained = self._too_small(reason, "the first batch that trains", prepared)
        return reason

    def check_training(self, first: Prepared, population: int) -> None:
        """Refuse a budget of calls that has no room for a batch of a whole population after the first batch.

        How large that will be is not known before it is asked for; each of its members answers once at least.

        Raises:
            UserError: which budget, and what makes the batch smaller.
        """
        limit, least = self.services.budget.calls, population * self.brief.max_calls
        if limit is not None and not first.members and self._most_calls([first, *self.reserve()]) + least > limit:
            raise UserError(
                f"--calls is too small for a batch that trains: the first batch, which trains nothing, asks for "
                f"{first.size} answers, and {population} members ask for {least} at least "
                f"(--population N makes that smaller, --param none trains nothing); nothing was started"
            )

    def _refused(self, plans: Sequence[Prepared], spent: Ledger) -> str:
        tokens = lambda: sum(self._most_tokens(plan) for plan in plans)  # noqa: E731 - counted only where it limits
        return self.services.budget.refuses(spent, self._most_calls(plans), tokens)

    def reserve(self) -> list[Prepared]:
        """The probe at the end of the run, which a budget has to have room for."""
        return [self.prepare_probe()] if self.probe_every else []

    def reserved_calls(self) -> int:
        """Calls that `reserve` may take."""
        return self._most_calls(self.reserve())

    def tries(self, planned: Sequence[Prepared], probe: bool = False) -> Tries:
        """What the first of `planned`, a batch or the probe before it, may ask; for all of them there has to be room.

        As many requests may be asked again after an engine failed as are left when all of `planned` was asked once.
        """
        budget, spent, tries = self.services.budget, self.services.spent(probe), Tries()
        if budget.calls is not None:
            tries.spare = budget.calls - spent.calls - self._most_calls(planned)
        if budget.tokens is not None:
            first = self._costs(planned[0])
            most = _most(first) + sum(self._most_tokens(each) for each in planned[1:])
            tries.spare_tokens = budget.tokens - spent.tokens - most
            tries.costs = dict(first)
        return tries

    def _most_calls(self, planned: Sequence[Prepared]) -> int:
        return sum(prepared.size for prepared in planned) * self.brief.max_calls

    def _too_small(self, limit: str, which: str, prepared: Prepared) -> str:
        """What to tell a user whose budget does not reach for the first batch, or the first that trains."""
        members = len(prepared.members)
        smaller = f"{members} members; --population N" if members else self.sized_by
        each = f" ({smaller} makes it smaller)" if smaller else ""
        probe = f" and {self.prepare_probe().size} more at the end (probe.every = 0 does without)"
        may = f" and may take {self._most_tokens(prepared):,} tokens" if limit == "tokens" else ""
        end = "the weights are as they were" if self.services.ledger.calls else "nothing was started"
        return (
            f"--{limit} is too small for {which}, which asks for {prepared.size} answers{each}{may}"
            f"{probe if self.probe_every else ''}; {end}"
        )

    def _most_tokens(self, prepared: Prepared) -> int:
        return _most(self._costs(prepared))

    def _costs(self, prepared: Prepared) -> Costs:
        """Tokens of each request by its `key`: of its prompt, and of its answer at most."""
        if not offers(self.engine, CountsTokens) or self.brief.max_calls > 1 or drives_itself(self.task):
            raise UserError(NOT_COUNTED)
        count = self.engine.count_tokens
        costs: Costs = []
        for cell in (cell for chunk in prepared.chunks for cell in chunk.cells):
            for request in self._first(prepared.examples[cell.example], prepared.batch.contexts[cell.context]):
                whole = replace(request, sampling=request.sampling or self.sampling)
                costs.append((key(whole), (count(request), (request.sampling or self.sampling).max_new_tokens)))
        return costs

    def _first(self, example: Example, context: Context) -> Sequence[Request]:
        """What an episode asks first."""
        try:
            return self.task.episode(example, context).requests()
        except CoevoError:
            raise
        except Exception as error:
            raise PluginError(
                f"the task cannot say what it asks, so that --tokens cannot be kept: {told(error)}"
            ) from error


def _most(costs: Costs) -> int:
    return sum(prompt + answer for _, (prompt, answer) in costs)
