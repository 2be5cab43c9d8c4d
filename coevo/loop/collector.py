"""From a plan to rollouts: `collect`, the one place that runs episodes.

Here (and in `attempts`), and nowhere else, a failed episode becomes data.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, TypeVar, cast

from coevo.errors import CoevoError, PluginError, RequestFailedError
from coevo.host.faults import told
from coevo.interfaces import Engine, Episode, Policy, Task
from coevo.loop.agents import EpisodePolicy, drive
from coevo.loop.attempt import ENGINE_ERROR, Attempt, record, step_of
from coevo.loop.budget import Tries, key
from coevo.loop.plan import Chunk, Prepared
from coevo.optional import CountsTokens, DrivesItself, offers
from coevo.records import Completion, EpisodeResult, Perturbation, Request, Rollout, Sampling

T = TypeVar("T")


@dataclass(slots=True)
class Collector:
    """Runs chunks on an engine and scores them, generation and scoring overlapping.

    Attributes:
        engine, task: who answers and who judges.
        wrap: the context updater's optional `wrap`.
        sampling: for requests that bring none.
        retries: how often an engine or judge failure is tried again.
        tries: what this batch may ask again, and has; set by whoever has a budget or keeps what is asked.
        scorers: threads in which `Episode.result` runs.
    """

    engine: Engine
    task: Task
    sampling: Sampling
    scorers: ThreadPoolExecutor
    wrap: Callable[[Episode], Episode] | None = None
    retries: int = 2
    tries: Tries = field(default_factory=Tries)

    async def collect(
        self, prepared: Prepared, chunks: Sequence[Chunk], finished: Callable[[Sequence[Rollout]], None]
    ) -> None:
        """Run `chunks` of the plan; `finished` gets each chunk's rollouts, strictly in plan order.

        Raises:
            CoevoError: from an engine that cannot go on (it is not retried).
        """
        capabilities, loop = self.engine.capabilities, asyncio.get_running_loop()
        slots = asyncio.Semaphore(capabilities.slots)
        scored: dict[int, asyncio.Future[asyncio.Task[list[Rollout]]]] = {c.index: loop.create_future() for c in chunks}

        async def serve(member: int | None, together: Sequence[Chunk]) -> None:
            perturbation = None if member is None else prepared.members[member]
            async with slots, self.engine.lease(perturbation) as policy:
                await _all(answer(chunk, perturbation, policy) for chunk in together)

        async def answer(chunk: Chunk, perturbation: Perturbation | None, policy: Policy) -> None:
            started = time.monotonic()
            calls = self.task.brief().max_calls
            attempts = [
                Attempt(
                    prepared.batch.contexts[cell.context], prepared.examples[cell.example], cell, self.sampling, calls
                )
                for cell in chunk.cells
            ]
            await self._generate(attempts, policy, chunk.index)
            work = self._judge(attempts, chunk, perturbation, policy.id, prepared, started)
            scored[chunk.index].set_result(_started(group, work))  # the lease does not wait for the judge

        try:
            async with asyncio.TaskGroup() as group:
                for together in _together(chunks, capabilities.rolling):
                    serving = group.create_task(serve(together[0].member, together))
                    serving.add_done_callback(partial(_tell_cancelled, [scored[chunk.index] for chunk in together]))
                for chunk in chunks:
                    finished(await (await scored[chunk.index]))
        except BaseExceptionGroup as group_error:
            raise _first(group_error) from group_error

    async def _judge(
        self,
        attempts: Sequence[Attempt],
        chunk: Chunk,
        perturbation: Perturbation | None,
        policy_id: str,
        prepared: Prepared,
        started: float,
    ) -> list[Rollout]:
        results = await _all(self._score(attempt) for attempt in attempts)
        seconds = (time.monotonic() - started) / len(attempts)
        return [
            record(attempt, result, chunk, perturbation, policy_id, prepared, seconds)
            for attempt, result in zip(attempts, results, strict=True)
        ]

    async def _generate(self, attempts: Sequence[Attempt], policy: Policy, chunk: int) -> None:
        if offers(self.task, DrivesItself):
            run = self.task.run
            await _all(self._drive(attempt, policy, chunk, run) for attempt in attempts)
            return
        for attempt in attempts:
            attempt.begin(self.task, self.wrap)
        if self.engine.capabilities.rolling:
            await _all(self._alone(attempt, policy, chunk) for attempt in attempts)
        else:
            await self._in_step(attempts, policy, chunk)

    async def _alone(self, attempt: Attempt, policy: Policy, chunk: int) -> None:
        """One episode at its own pace; what it does between requests holds up no other."""
        loop = asyncio.get_running_loop()
        while requests := attempt.pending():
            answers = await self._complete(policy, chunk, requests)
            if isinstance(answers, Exception):
                attempt.fail("engine_error", answers)
                return
            await loop.run_in_executor(self.scorers, attempt.advance, answers)

    async def _in_step(self, attempts: Sequence[Attempt], policy: Policy, chunk: int) -> None:
        """All episodes together, a request each at a time: the same batches whenever the chunk is run."""
        while waiting := [(a, r) for a in attempts if (r := a.pending())]:
            flat = [request for _, requests in waiting for request in requests]
            answers = await self._complete(policy, chunk, flat)
            if isinstance(answers, Exception):
                for attempt, _ in waiting:
                    attempt.fail("engine_error", answers)
                continue
            position = 0
            for attempt, requests in waiting:
                attempt.advance(answers[position : position + len(requests)])
                position += len(requests)

    async def _drive(self, attempt: Attempt, policy: Policy, chunk: int, run: Callable[..., Awaitable[Any]]) -> None:
        """An agent with a loop of its own; each try has a fresh view of the policy, with the same seeds."""

        def new_policy() -> EpisodePolicy:
            view = EpisodePolicy(
                policy.id, attempt, lambda requests: self._complete(policy, chunk, requests, lambda: view.ended)
            )
            return view

        await drive(run, attempt, new_policy, self.retries)

    async def _score(self, attempt: Attempt) -> EpisodeResult:
        if attempt.result is not None:
            return attempt.result
        assert attempt.episode is not None
        loop = asyncio.get_running_loop()
        judge = attempt.episode.result
        result = await self._retry(lambda: loop.run_in_executor(self.scorers, judge))
        if isinstance(result, Exception):
            return EpisodeResult("judge_error", artifacts={"message": told(result)})
        return result

    async def _complete(
        self, policy: Policy, chunk: int, requests: Sequence[Request], over: Callable[[], bool] = lambda: False
    ) -> list[Completion] | Exception:
        """What the policy answers, noted before it is asked; once the episode is `over`, nobody waits for it."""

        async def call() -> list[Completion]:
            self.tries.asking(chunk, requests)
            given = await policy.complete(requests)
            answers = [self._kept(request, answer) for request, answer in zip(requests, given, strict=True)]
            if not over():
                served = [r for r, a in zip(requests, answers, strict=True) if a.finish_reason != ENGINE_ERROR]
                self.tries.answered(chunk, served)
            return answers

        return await self._retry(call, lambda: not over() and self.tries.again(requests))

    def _kept(self, request: Request, answer: Completion) -> Completion:
        """The answer, or a failure in its place where it has more tokens than budgets were planned with."""
        if not offers(self.engine, CountsTokens):  # such an engine has no say in its tokens, and no budget of them
            return answer
        prompt, tokens = step_of(request, answer).spent
        counted, _ = self.tries.costs.get(key(request), (prompt, 0))
        most = (request.sampling or self.sampling).max_new_tokens
        if tokens > most:
            note = f"it gave {tokens:,} tokens for a request of at most {most:,} (max_new_tokens)"
        elif prompt > counted:
            note = f"it read a prompt of {prompt:,} tokens where count_tokens() had counted {counted:,}"
        else:
            return answer
        return Completion("", (), (), ENGINE_ERROR, note=note)

    async def _retry(self, call: Callable[[], Awaitable[Any]], again: Callable[[], bool] = lambda: True) -> Any:
        """What `call` gives, or the last exception after `retries` repeats.

        A `CoevoError` is final at once, and so is an engine that has given a request up by itself, and one that may
        not be asked `again`.
        """
        for left in range(self.retries, -1, -1):
            try:
                return await call()
            except CoevoError:
                raise
            except RequestFailedError as error:
                return error
            except Exception as error:  # noqa: BLE001 - here a failure becomes data
                if left == 0 or not again():
                    return error
        raise AssertionError("unreachable")


def _started(group: asyncio.TaskGroup, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task of the group; where the group is stopping, which is told to inner groups a turn late, this is its stop."""
    try:
        return group.create_task(work)
    except RuntimeError:
        work.close()
        raise asyncio.CancelledError from None


def _tell_cancelled(waited: Sequence[asyncio.Future[Any]], served: asyncio.Task[None]) -> None:
    """Whoever waits for chunks that nobody serves any more is told so: a task group says nothing of it."""
    for future in waited:
        if served.cancelled() and not future.done():
            future.set_exception(PluginError("a plugin cancelled the asyncio task that called it"))
            future.exception()  # where the group was stopped, nobody waits, and asyncio would complain of that


def _together(chunks: Sequence[Chunk], rolling: bool) -> list[list[Chunk]]:
    """What shares a lease: all chunks of a member where the engine is rolling, else each is alone."""
    if not rolling:
        return [[chunk] for chunk in chunks]
    return [list(of_member) for _, of_member in groupby(chunks, key=lambda chunk: chunk.member)]


async def _all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, in order. The first failure stops the rest and is raised; what they raise then is nobody's news."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in work]
    except BaseExceptionGroup as error:
        raise _first(error) from error
    return [task.result() for task in tasks]


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a task group failed of: a `CoevoError` where there is one, since it has words for the user."""
    leaves = [
        _first(cast(BaseExceptionGroup[BaseException], e)) if isinstance(e, BaseExceptionGroup) else e
        for e in group.exceptions
    ]
    return next((e for e in leaves if isinstance(e, CoevoError)), leaves[0])
