"""How many rollouts a generation has: the updaters are asked, and told that no rollout succeeded."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coevo.app.blueprint import Blueprint
from coevo.errors import CoevoError, PluginError
from coevo.host.faults import told
from coevo.interfaces import Task
from coevo.loop.plan import Chunk, Plan, PlanSettings, choose, load_examples
from coevo.loop.services import RunServices
from coevo.optional import drives_itself
from coevo.records import Batch, Buffer, Example, Perturbation, Provenance, Rollout, Trajectory
from coevo.tools.sizing.refusals import check_engines

GENERATIONS = 2
"""The first, which may have to fill a population, and one that stands for the others."""

MOST_BATCHES = 1000
"""Of a generation: an updater that asks for more never ends."""


@dataclass(frozen=True, slots=True)
class BatchCount:
    """One batch: what it asks for.

    Attributes:
        members: policies that answer; 1 where the centre does.
        rollouts, hand: of all, and of the member with the most.
        adapt: whether the weights are updated after it.
        characters: of the longest prompt.
    """

    operator: str
    adapt: bool
    members: int
    rollouts: int
    hand: int
    characters: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What generations ask for. `problem` says why nothing is known; both lists are empty then."""

    first: Sequence[BatchCount] = ()
    usual: Sequence[BatchCount] = ()
    problem: str = ""

    @property
    def hand(self) -> int:
        """The most requests that one policy gets in a batch."""
        return max((batch.hand for batch in (*self.first, *self.usual)), default=1)

    @property
    def characters(self) -> int:
        """Of the longest prompt that was seen."""
        return max((batch.characters for batch in (*self.first, *self.usual)), default=0)


def rehearse(blueprint: Blueprint, task: Task) -> Counts:
    """Ask the updaters for the batches of two generations, as a run would. Nothing is generated or scored.

    Raises:
        UserError: an updater refuses its options or the task, or the engine cannot do what it needs.
    """
    config, brief = blueprint.config, task.brief()
    with tempfile.TemporaryDirectory(prefix="coevo-plan-") as folder:
        services = RunServices(config.seed, Path(folder))
        parameters, contexts = blueprint.make_updaters(brief, services)
        check_engines(blueprint, parameters)
        generations: list[list[BatchCount]] = []
        try:
            for services.generation in range(GENERATIONS):
                generations.append([])
                for services.batch in range(MOST_BATCHES):
                    batch = contexts.ask()
                    if batch is None:
                        break
                    members = tuple(parameters.ask(batch)) if batch.adapt else ()
                    examples = choose(load_examples(task, batch.split), batch)
                    settings = PlanSettings(config.seed, services.generation, services.batch, parameters.answers)
                    chunks = Plan(batch, examples, len(members), settings)
                    generations[-1].append(_count(task, batch, examples, chunks, max(1, len(members))))
                    contexts.tell(_failed(batch, members, examples, chunks, services))
                    services.adapted += bool(members)
        except CoevoError as error:
            # What an updater raised may be for want of answers, which a rehearsal has not.
            if not isinstance(error, PluginError) or error.__cause__ is None:
                raise
            return Counts(problem=f"{config.context!r} cannot be rehearsed: {told(error.__cause__)}")
        except Exception as error:  # noqa: BLE001 - nor has it what a stranger's episode may need
            return Counts(problem=f"{config.context!r} cannot be rehearsed: {told(error)}")
        return Counts(generations[0], generations[1])


def _count(task: Task, batch: Batch, examples: Sequence[Example], chunks: Sequence[Chunk], members: int) -> BatchCount:
    hands: dict[int | None, int] = {}
    for chunk in chunks:
        hands[chunk.member] = hands.get(chunk.member, 0) + len(chunk.cells)
    first_member = chunks[0].member
    characters = _characters(task, batch, examples[chunks[0].cells[0].example], chunks[0].cells[0].context)
    adapts = first_member is not None and batch.adapt
    return BatchCount(
        operator=batch.operator,
        adapt=adapts,
        members=members,
        rollouts=sum(hands.values()),
        hand=max(hands.values()),
        characters=characters,
    )


def _characters(task: Task, batch: Batch, example: Example, context: int) -> int:
    """Of the longest first prompt; of an agent that drives itself, those of the context that it is given."""
    if drives_itself(task):
        return sum(len(text) for text in batch.contexts[context].components.values())
    requests = task.episode(example, batch.contexts[context]).requests()
    return max((sum(len(str(m.get("content", ""))) for m in r.messages) for r in requests), default=0)


def _failed(
    batch: Batch,
    members: tuple[Perturbation, ...],
    examples: Sequence[Example],
    chunks: Sequence[Chunk],
    services: RunServices,
) -> Buffer:
    """The batch as if the model had never given an answer."""
    rollouts: list[Rollout] = []
    for chunk in chunks:
        member = None if chunk.member is None else members[chunk.member]
        for cell in chunk.cells:
            provenance = Provenance(
                generation=services.generation,
                batch=services.batch,
                chunk=chunk.index,
                member=chunk.member,
                seed=0 if member is None else member.seed,
                sigma=0.0 if member is None else member.sigma,
                context=cell.context,
                context_id=batch.contexts[cell.context].id,
                example=examples[cell.example].id,
                sample=cell.sample,
                sampling_seed=cell.seed,
                policy_id="",
                operator=batch.operator,
                purpose=batch.purpose,
            )
            rollouts.append(Rollout(provenance, "no_answer", None, Trajectory()))
    buffer = Buffer(batch, members, tuple(rollouts))
    return dataclasses.replace(buffer, rollouts=tuple(dataclasses.replace(r, credit=0.0) for r in buffer.rollouts))
