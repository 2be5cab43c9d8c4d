"""The same questions to the centre and to members of any size, and what their answers are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coevo import records
from coevo.errors import RunError
from coevo.interfaces import Brief, Engine, Task
from coevo.loop.collector import Collector
from coevo.loop.plan import Plan, PlanSettings, Prepared, load_examples
from coevo.numerics.credit import default_credit, with_credits
from coevo.numerics.seeds import derive, noise_seed
from coevo.numerics.shaping import Floats, bounded_credit
from coevo.optional import Moves, offers
from coevo.records import EXCLUDED, Batch, Buffer, Context, Example, Perturbation, Rollout

TUNE = "tune"


@dataclass(frozen=True, slots=True)
class Questions:
    """A fixed `cross` batch of the task's own context: some examples, each with some sampling seeds.

    The seeds depend on neither member nor sigma, and member i has the same noise at every sigma: what differs
    between two sigmas is then sigma.
    """

    batch: Batch
    examples: Sequence[Example]
    settings: PlanSettings

    @classmethod
    def of(cls, task: Task, brief: Brief, answers: int, seed: int, chunk: int) -> Questions:
        """About `answers` questions, from examples spread over the train split."""
        context = Context(dict(brief.components), operator=TUNE)
        every = load_examples(task, Batch((context,)).split)
        count = min(len(every), answers)
        chosen = [every[i * len(every) // count] for i in range(count)]
        batch = Batch((context,), samples=answers // count, operator=TUNE)
        return cls(batch, chosen, PlanSettings(derive(seed, TUNE), 0, 0, common=True, chunk=chunk))

    def wider(self, factor: int) -> Questions:
        """These questions and others: `factor` times as many samples of each example."""
        return replace(self, batch=replace(self.batch, samples=factor * self.batch.samples))

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.examples) * self.batch.samples

    def members(self, count: int, sigma: float) -> tuple[Perturbation, ...]:
        """`count` members of size `sigma`."""
        root = self.settings.root_seed
        return tuple(Perturbation(noise_seed(root, 0, 0, index), sigma) for index in range(count))

    async def ask(self, collector: Collector, members: tuple[Perturbation, ...] = ()) -> tuple[Rollout, ...]:
        """All answers of all members, or of the centre; member after member, question after question."""
        chunks = Plan(self.batch, self.examples, len(members), self.settings)
        rollouts: list[Rollout] = []
        await collector.collect(
            Prepared(self.batch, members, self.examples, self.settings, chunks), chunks, rollouts.extend
        )
        return tuple(rollouts)


@dataclass(frozen=True, slots=True)
class Credits:
    """What answers are worth.

    Attributes:
        members: (members, answers).
        centre: (answers,), of the same questions.
        wide: of all that the centre was asked.
    """

    members: Floats
    centre: Floats
    wide: Floats


def credits_of(
    questions: Questions,
    members: tuple[Perturbation, ...],
    centre: Sequence[Rollout],
    rollouts: Sequence[Rollout],
    brief: Brief,
) -> Credits:
    """Credits of the centre's answers to wider questions and the members' to `questions`.

    Bounded credit where the task has a baseline, else the default one. A question at which engine or judge failed
    somebody is left out for all.

    Raises:
        RunError: fewer than two questions are left.
    """
    every = (*centre, *rollouts)
    buffer = Buffer(questions.batch, members, every)
    if baseline := brief.baseline_return():
        buffer = with_credits(buffer, [bounded_credit(r.return_, baseline) for r in every])
    else:
        buffer = default_credit(buffer, brief.failure)
    values = np.array([np.nan if r.credit is None else r.credit for r in buffer.rollouts], dtype=np.float64)
    wide, of_members = values[: len(centre)], values[len(centre) :].reshape(len(members), questions.size)
    # Of each example the centre has more samples; the members' are the first of them.
    same = wide.reshape(len(questions.examples), -1)[:, : questions.batch.samples].ravel()
    whole = np.isfinite(of_members).all(axis=0) & np.isfinite(same)
    if whole.sum() < 2:
        raise RunError(_why_nothing(every))
    return Credits(of_members[:, whole], same[whole], wide[np.isfinite(wide)])


def _why_nothing(rollouts: Sequence[Rollout]) -> str:
    failed = next((r for r in rollouts if r.status in EXCLUDED), None)
    if failed is None:
        return "the returns of the task are not finite"
    return f"too many answers failed with {failed.status!r}: {failed.artifacts.get('message', '')}"


def valid_share(rollouts: Sequence[Rollout]) -> float:
    """Share of valid answers among those that engine and judge did not fail at, 0 of none."""
    judged = [r for r in rollouts if r.status not in EXCLUDED]
    return records.valid_share(Counter(r.status for r in judged))


def equal_share(rollouts: Sequence[Rollout], members: int) -> float:
    """Share of the pairs of members that answer a question in the same words, over all questions."""
    # Objects, since a numpy text drops what it ends with.
    texts: NDArray[np.object_] = np.empty(len(rollouts), dtype=object)
    texts[:] = ["\0".join(step.text for step in rollout.trajectory.steps) for rollout in rollouts]
    columns = texts.reshape(members, -1).T
    equal = sum(n * (n - 1) for column in columns for n in Counter(column.tolist()).values())
    return equal / (len(columns) * members * (members - 1))


def moved_share(engine: Engine, members: Sequence[Perturbation]) -> float | None:
    """Share of sampled weights whose served value a member changes; None where the engine cannot tell."""
    return float(engine.moved(members[0])) if offers(engine, Moves) else None
