"""Episodes that drive themselves: an agent with a loop of its own, and the policy as it sees it.

What the agent does is its own business; what it asks of the model goes through its `EpisodePolicy`, whichever way it
asks, and so has the run's sampling and seeds, is recorded and is counted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from coevo.endpoint import serve
from coevo.errors import CoevoError
from coevo.interfaces import Endpoint
from coevo.loop.attempt import ENGINE_ERROR, Attempt, short, step_of
from coevo.numerics.seeds import derive
from coevo.records import Completion, EpisodeResult, Request, Sampling, Step, Trajectory

Ask = Callable[[Sequence[Request]], Awaitable[list[Completion] | Exception]]
"""Asks the policy, as often as an engine may fail; what it failed of at last is returned and not raised."""


class EngineFailedError(Exception):
    """The engine did not answer. The rollout is lost, whatever the agent makes of it."""


class EpisodePolicy:
    """The policy of one episode.

    Requests without a sampling get the run's. Those without a seed get one from the episode's and their place: how
    many the episode had asked before, and the position in their call. Concurrent requests have the places in which
    they came.

    Attributes:
        id: of the weights.
        failure: what the engine failed of; no request is answered from then on.
        fatal: an error that ends the run.
        overflowed: whether a request did not fit the model's context.
        notes: what the engine says of its answers.
        ended: whether the episode is over; what is still asked is refused, and nothing more is recorded.
    """

    def __init__(self, id: str, attempt: Attempt, ask: Ask) -> None:  # noqa: A002 - the Protocol's word
        """The policy of a fresh episode.

        Args:
            id: of the weights.
            attempt: gives seed and sampling, and counts the requests.
            ask: answers them.
        """
        self.id = id
        self.failure: Exception | None = None
        self.fatal: CoevoError | None = None
        self.overflowed = False
        self.notes: list[str] = []
        self._seed, self._sampling = attempt.cell.seed, attempt.sampling
        self._count, self._ask = attempt.ask, ask
        self._asked = 0
        self._answered: list[tuple[int, Step]] = []
        self.ended = False

    @property
    def steps(self) -> list[Step]:
        """What was answered, in the order in which it was asked."""
        return [step for _, step in sorted(self._answered, key=lambda item: item[0])]

    @property
    def sampling(self) -> Sampling:
        """The run's."""
        return self._sampling

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answer all, in order, and record each.

        Raises:
            CallLimitError: these would be more than the task's brief allows an episode.
            EngineFailedError: the engine went on failing.
            CoevoError: the run cannot go on.
            RuntimeError: the episode is over.
        """
        self._check(len(requests))
        place = self._asked
        self._asked += len(requests)
        asked = [
            replace(request, seed=request.seed or self._seed_of(place, i), sampling=request.sampling or self._sampling)
            for i, request in enumerate(requests)
        ]
        try:
            answers = await self._ask(asked)
        except CoevoError as error:
            self.fatal = error
            raise
        if isinstance(answers, Exception):
            self.failure = answers
            raise EngineFailedError(short(answers))
        if self.ended:
            raise RuntimeError("the episode ended before its request was answered")
        self._answered += [
            (place + i, step_of(request, answer))
            for i, (request, answer) in enumerate(zip(asked, answers, strict=True))
            if answer.finish_reason != ENGINE_ERROR
        ]
        for failed in (answer for answer in answers if answer.finish_reason == ENGINE_ERROR):
            self.failure = EngineFailedError(failed.note)
            raise self.failure
        self.notes += [answer.note for answer in answers if answer.note]
        self.overflowed |= any(answer.finish_reason == "context_overflow" for answer in answers)
        return answers

    @asynccontextmanager
    async def endpoint(self) -> AsyncGenerator[Endpoint]:
        """Serve it on loopback to an agent that speaks HTTP; `sampling` is for what its requests leave open.

        Raises:
            CoevoError: it cannot be served; no other episode could be, and the run ends whatever the agent does.
        """
        async with AsyncExitStack() as stack:
            try:
                served = await stack.enter_async_context(serve(self, sampling=self._sampling, seed=None))
            except CoevoError as error:
                self.fatal = error
                raise
            yield served

    def end(self) -> None:
        """The episode is over: what is still asked is refused."""
        self.ended = True

    def _seed_of(self, place: int, i: int) -> int:
        return self._seed if place == i == 0 else derive(self._seed, "step", place, i)

    def _check(self, count: int) -> None:
        if self.ended:
            raise RuntimeError("complete() was called after the episode ended")
        if self.fatal is not None:
            raise self.fatal
        if self.failure is not None:
            raise EngineFailedError(short(self.failure))
        self._count(count)


async def drive(
    run: Callable[..., Awaitable[Any]], attempt: Attempt, new_policy: Callable[[], EpisodePolicy], retries: int
) -> None:
    """Let an agent run its episode, and set the attempt's result and steps.

    An exception after the model has answered is the policy's (`exception`): what the model said may be the cause. One
    before is not, so the episode is begun again, as often as a judge's; then it is a `judge_error`. What the engine
    fails of is an `engine_error`, whatever the agent did about it.

    Raises:
        CoevoError: from an engine that cannot go on, or from the agent.
    """
    for left in range(retries, -1, -1):
        policy = new_policy()
        error: Exception | None = None
        outcome: Any = None
        try:
            outcome = await run(attempt.example, attempt.context, policy)
        except CoevoError:
            raise
        except Exception as raised:  # noqa: BLE001 - here a failure becomes data
            error = raised
        finally:
            policy.end()
        if policy.fatal is not None:
            raise policy.fatal
        attempt.steps, attempt.notes = policy.steps, policy.notes
        attempt.tokens = sum(s.spent[0] for s in attempt.steps), sum(s.spent[1] for s in attempt.steps)
        if policy.failure is not None:
            attempt.fail("engine_error", policy.failure)
        elif error is None:
            _take(attempt, outcome)
        elif policy.overflowed:
            attempt.fail("context_overflow", error)
        elif attempt.steps:
            attempt.fail("exception", error)
        elif left:
            continue
        else:
            attempt.fail("judge_error", error)
        return


def _take(attempt: Attempt, outcome: Any) -> None:
    """The agent's own verdict; its own trajectory is taken if it hides no answer, since its tokens are counted."""
    if isinstance(outcome, EpisodeResult):
        attempt.result = outcome
        return
    match outcome:
        case (EpisodeResult() as result, Trajectory() as trajectory):
            if (count := len(trajectory.steps)) > attempt.calls:
                error = ValueError(f"run() gave {count:,} steps; its task's brief says max_calls = {attempt.calls}")
                attempt.fail("judge_error", error)
                return
            attempt.result = result
            if len(trajectory.steps) >= len(attempt.steps):
                attempt.steps = list(trajectory.steps)
        case _:
            kind = type(cast(object, outcome)).__name__
            error = TypeError(f"run() returned {kind!r}; expected EpisodeResult or (EpisodeResult, Trajectory)")
            attempt.fail("judge_error", error)
