"""From a batch to rollouts: the plan (pure), and `collect`, the one place that runs episodes.

Here, and nowhere else, a failed episode becomes data. A *chunk* holds requests of one member; its
membership and order are a function of the plan and the configured size, so a repeated chunk is the same
computation on the same seeds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, cast

from coevo.errors import CoevoError
from coevo.interfaces import Engine, Episode, Policy, Task
from coevo.records import (
    Batch,
    Completion,
    Context,
    EpisodeResult,
    Example,
    Perturbation,
    Provenance,
    Request,
    Rollout,
    Sampling,
    Step,
    Trajectory,
)
from coevo.seeds import derive, sampling_seed


@dataclass(frozen=True, slots=True)
class Cell:
    """One planned rollout: indices into the batch's contexts and its examples."""

    context: int
    example: int
    sample: int
    seed: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Planned rollouts of one member (None: the centre)."""

    index: int
    member: int | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What a plan depends on besides the batch. `common` None takes the pairing's default."""

    root_seed: int
    generation: int
    batch: int
    answers: int = 1
    common: bool | None = None
    chunk: int = 32


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch with everything that running it needs."""

    batch: Batch
    members: tuple[Perturbation, ...]
    examples: Sequence[Example]
    settings: PlanSettings
    chunks: Sequence[Chunk]

    @property
    def size(self) -> int:
        """Planned rollouts."""
        return sum(len(chunk.cells) for chunk in self.chunks)


def plan(batch: Batch, examples: Sequence[Example], members: int, settings: PlanSettings) -> list[Chunk]:
    """All chunks of a batch in order, members one after the other.

    Args:
        batch: what to roll out.
        examples: the batch's examples in order.
        members: population of this batch; 0 is the centre alone.
        settings: seeds and sizes.
    """
    zipped = batch.pairing == "zip" and members > 0
    deal = _deal_zip if zipped else _deal_cross
    hands = deal(batch, len(examples), max(members, 1), settings.answers)
    common = batch.pairing == "cross" if settings.common is None else settings.common
    at = (settings.root_seed, settings.generation, settings.batch)
    chunks: list[Chunk] = []
    for index, hand in enumerate(hands):
        member = index if members else None
        seeded = None if common else member

        def seed(place: int, c: int, e: int, s: int, seeded: int | None = seeded) -> int:
            if zipped and common:
                # No two members are dealt the same (context, sample): what they have in common is the place in
                # their hands.
                c, s = 0, place // len(examples)
            return sampling_seed(*at, c, examples[e].id, s, seeded)

        cells = [Cell(c, e, s, seed(place, c, e, s)) for place, (c, e, s) in enumerate(hand)]
        for start in range(0, len(cells), settings.chunk):
            part = tuple(cells[start : start + settings.chunk])
            chunks.append(Chunk(len(chunks), member, part))
    return chunks


def _deal_cross(batch: Batch, examples: int, members: int, answers: int) -> list[list[tuple[int, int, int]]]:
    """Every member sees every context and example, `batch.samples` times."""
    hand = [(c, e, s) for c in range(len(batch.contexts)) for e in range(examples) for s in range(batch.samples)]
    return [list(hand) for _ in range(members)]


def _deal_zip(batch: Batch, examples: int, members: int, answers: int) -> list[list[tuple[int, int, int]]]:
    """Blocks of `answers` contexts to the members in turn; contexts repeat until every member has a block."""
    count = len(batch.contexts)
    blocks = max(members, -(-count // answers))
    slots = max(count, members * answers) if blocks == members else count
    hands: list[list[tuple[int, int, int]]] = [[] for _ in range(members)]
    for slot in range(slots):
        context, repeat = slot % count, slot // count
        hands[(slot // answers) % members] += [(context, e, repeat) for e in range(examples)]
    return hands


@dataclass(slots=True)
class Collector:
    """Runs chunks on an engine and scores them, generation and scoring overlapping.

    Attributes:
        engine, task: who answers and who judges.
        wrap: the context updater's optional `wrap`.
        sampling: for requests that bring none.
        retries: how often an engine or judge failure is tried again.
        scorers: threads in which `Episode.result` runs.
    """

    engine: Engine
    task: Task
    sampling: Sampling
    scorers: ThreadPoolExecutor
    wrap: Callable[[Episode], Episode] | None = None
    retries: int = 2

    async def collect(
        self, prepared: Prepared, chunks: Sequence[Chunk], finished: Callable[[Sequence[Rollout]], None]
    ) -> None:
        """Run `chunks` of the plan; `finished` gets each chunk's rollouts, strictly in plan order.

        Raises:
            CoevoError: from an engine that cannot go on (it is not retried).
        """
        slots = asyncio.Semaphore(self.engine.capabilities.slots)
        batch, examples = prepared.batch, prepared.examples

        async def one(chunk: Chunk) -> list[Rollout]:
            perturbation = None if chunk.member is None else prepared.members[chunk.member]
            started = time.monotonic()
            async with slots, self.engine.lease(perturbation) as policy:
                attempts = [
                    _Attempt(batch.contexts[cell.context], examples[cell.example], cell, self.sampling)
                    for cell in chunk.cells
                ]
                await self._generate(attempts, policy)
            results = await asyncio.gather(*(self._score(attempt) for attempt in attempts))
            seconds = (time.monotonic() - started) / len(attempts)
            return [
                _record(attempt, result, chunk, perturbation, policy.id, prepared, seconds)
                for attempt, result in zip(attempts, results, strict=True)
            ]

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(chunk)) for chunk in chunks]
                for task in tasks:
                    finished(await task)
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from group_error

    async def _generate(self, attempts: Sequence[_Attempt], policy: Policy) -> None:
        run = getattr(self.task, "run", None)
        if run is not None:
            await asyncio.gather(*(self._drive(attempt, policy, run) for attempt in attempts))
            return
        for attempt in attempts:
            attempt.begin(self.task, self.wrap)
        while waiting := [(a, r) for a in attempts if (r := a.pending())]:
            flat = [request for _, requests in waiting for request in requests]
            answers = await self._retry(lambda flat=flat: policy.complete(flat))
            if isinstance(answers, Exception):
                for attempt, _ in waiting:
                    attempt.fail("engine_error", answers)
                continue
            position = 0
            for attempt, requests in waiting:
                attempt.advance(answers[position : position + len(requests)])
                position += len(requests)

    async def _drive(self, attempt: _Attempt, policy: Policy, run: Callable[..., Awaitable[Any]]) -> None:
        outcome = await self._retry(lambda: run(attempt.example, attempt.context, policy))
        if isinstance(outcome, Exception):
            attempt.fail("engine_error", outcome)
        else:
            attempt.result, trajectory = cast(tuple[EpisodeResult, Trajectory], outcome)
            attempt.steps = list(trajectory.steps)

    async def _score(self, attempt: _Attempt) -> EpisodeResult:
        if attempt.result is not None:
            return attempt.result
        assert attempt.episode is not None
        loop = asyncio.get_running_loop()
        judge = attempt.episode.result
        result = await self._retry(lambda: loop.run_in_executor(self.scorers, judge))
        if isinstance(result, Exception):
            return EpisodeResult("judge_error", artifacts={"message": _short(result)})
        return result

    async def _retry(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, or the last exception after `retries` repeats. A `CoevoError` is final at once."""
        for left in range(self.retries, -1, -1):
            try:
                return await call()
            except CoevoError:
                raise
            except Exception as error:  # noqa: BLE001 - here a failure becomes data
                if left == 0:
                    return error
        raise AssertionError("unreachable")


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a task group failed of: a `CoevoError` where there is one, since it has words for the user."""
    leaves = [
        _first(cast(BaseExceptionGroup[BaseException], e)) if isinstance(e, BaseExceptionGroup) else e
        for e in group.exceptions
    ]
    return next((e for e in leaves if isinstance(e, CoevoError)), leaves[0])


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


class _Attempt:
    """One rollout in flight."""

    def __init__(self, context: Context, example: Example, cell: Cell, sampling: Sampling) -> None:
        self.context, self.example, self.cell, self.sampling = context, example, cell, sampling
        self.episode: Episode | None = None
        self.result: EpisodeResult | None = None
        self.steps: list[Step] = []
        self._requests: list[Request] = []

    def begin(self, task: Task, wrap: Callable[[Episode], Episode] | None) -> None:
        try:
            episode = task.episode(self.example, self.context)
            self.episode = wrap(episode) if wrap else episode
        except CoevoError:
            raise
        except Exception as error:  # noqa: BLE001 - here a failure becomes data
            self.fail("judge_error", error)

    def pending(self) -> list[Request]:
        if self.result is not None or self.episode is None:
            return []
        try:
            asked = list(self.episode.requests())
        except CoevoError:
            raise
        except Exception as error:  # noqa: BLE001 - here a failure becomes data
            self.fail("judge_error", error)
            return []
        step = len(self.steps)
        self._requests = [
            replace(
                request,
                seed=self.cell.seed if step == i == 0 else derive(self.cell.seed, "step", step, i),
                sampling=request.sampling or self.sampling,
            )
            for i, request in enumerate(asked)
        ]
        return self._requests

    def advance(self, completions: Sequence[Completion]) -> None:
        assert self.episode is not None
        self.steps += [
            Step(
                r.messages, c.prompt_ids, c.completion_ids, c.finish_reason, c.text, r.prefill,
                logprobs=c.logprobs,
            )
            for r, c in zip(self._requests, completions, strict=True)
        ]  # fmt: skip
        if any(c.finish_reason == "context_overflow" for c in completions):
            self.result = EpisodeResult(
                "context_overflow",
                artifacts={"message": "the prompt and the answer do not fit the model's context"},
            )
            return
        try:
            self.episode.step(completions)
        except CoevoError:
            raise
        except Exception as error:  # noqa: BLE001 - here a failure becomes data
            self.fail("judge_error", error)

    def fail(self, status: str, error: BaseException) -> None:
        self.result = EpisodeResult(status, artifacts={"message": _short(error)})


def _record(
    attempt: _Attempt,
    result: EpisodeResult,
    chunk: Chunk,
    perturbation: Perturbation | None,
    policy_id: str,
    prepared: Prepared,
    seconds: float,
) -> Rollout:
    provenance = Provenance(
        generation=prepared.settings.generation,
        batch=prepared.settings.batch,
        chunk=chunk.index,
        member=chunk.member,
        seed=perturbation.seed if perturbation else 0,
        sigma=perturbation.sigma if perturbation else 0.0,
        context=attempt.cell.context,
        context_id=attempt.context.id,
        example=attempt.example.id,
        sample=attempt.cell.sample,
        sampling_seed=attempt.cell.seed,
        policy_id=policy_id,
        operator=prepared.batch.operator,
        purpose=prepared.batch.purpose,
    )
    return Rollout(
        provenance=provenance,
        status=result.status,
        return_=result.return_,
        trajectory=Trajectory(tuple(attempt.steps)),
        metrics=result.metrics,
        artifacts=result.artifacts,
        prompt_tokens=sum(len(s.prompt_ids) for s in attempt.steps),
        completion_tokens=sum(len(s.completion_ids) for s in attempt.steps),
        seconds=seconds,
    )
