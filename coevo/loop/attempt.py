"""One rollout in flight: an episode, what it asked and was answered, and the record that becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from coevo.endpoint.errors import CallLimitError
from coevo.errors import CoevoError
from coevo.host.faults import message, told
from coevo.interfaces import Episode, Task
from coevo.loop.plan import Cell, Chunk, Prepared
from coevo.numerics.seeds import derive
from coevo.records import (
    Completion,
    Context,
    EpisodeResult,
    Example,
    Json,
    Perturbation,
    Provenance,
    Request,
    Rollout,
    Sampling,
    Step,
    Trajectory,
)

ENGINE_ERROR = "engine_error"
"""Finish reason of an answer that is none; its note says why. Its rollout has the status of that name."""


def short(error: BaseException) -> str:
    """The error in a line."""
    return message(error)[:300]


def step_of(request: Request, completion: Completion) -> Step:
    """A request and its answer, as a step of the trajectory."""
    return Step(
        messages=request.messages,
        prompt_ids=completion.prompt_ids,
        completion_ids=completion.completion_ids,
        finish_reason=completion.finish_reason,
        text=completion.text,
        prefill=request.prefill,
        logprobs=completion.logprobs,
        tokens=completion.tokens,
    )


class Attempt:
    """One rollout in flight.

    Attributes:
        calls: how many requests its episode may make.
        asked: how many it made, a repeated try of the engine apart.
        tokens: (prompt, answer) of what it was answered, whatever its trajectory tells.
    """

    def __init__(self, context: Context, example: Example, cell: Cell, sampling: Sampling, calls: int) -> None:
        self.context, self.example, self.cell, self.sampling = context, example, cell, sampling
        self.calls, self.asked, self.tokens = calls, 0, (0, 0)
        self.episode: Episode | None = None
        self.result: EpisodeResult | None = None
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self._requests: list[Request] = []

    def begin(self, task: Task, wrap: Callable[[Episode], Episode] | None) -> None:
        """Make the episode."""
        try:
            episode = task.episode(self.example, self.context)
            self.episode = wrap(episode) if wrap else episode
        except CoevoError:
            raise
        except Exception as error:  # noqa: BLE001 - here a failure becomes data
            self.fail("judge_error", error)

    def pending(self) -> list[Request]:
        """What it asks next, each with its seed; empty once it is over."""
        if self.result is not None or self.episode is None:
            return []
        try:
            asked = list(self.episode.requests())
        except CoevoError:
            raise
        except Exception as error:  # noqa: BLE001 - here a failure becomes data
            self.fail("judge_error", error)
            return []
        try:
            self.ask(len(asked))
        except CallLimitError as error:
            # As for an agent that drives itself: what the model said may be the cause, if it has said anything.
            self.fail("exception" if self.steps else "judge_error", error)
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

    def ask(self, count: int) -> None:
        """Its episode is about to make `count` requests.

        Raises:
            CallLimitError: these would be more than the task's brief allows an episode.
        """
        if self.asked + count > self.calls:
            raise CallLimitError(
                f"the episode asks for call {self.asked + count}; its task's brief says max_calls = {self.calls}"
            )
        self.asked += count

    def advance(self, completions: Sequence[Completion]) -> None:
        """Give it the answers to what was pending."""
        assert self.episode is not None
        self.steps += [
            step_of(r, c) for r, c in zip(self._requests, completions, strict=True) if c.finish_reason != ENGINE_ERROR
        ]
        for failed in (c for c in completions if c.finish_reason == ENGINE_ERROR):
            self.result = EpisodeResult(ENGINE_ERROR, artifacts={"message": failed.note})
            return
        self.notes += [c.note for c in completions if c.note]
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
        """End it with a status that is no fault of the model; where the task is at fault, the place in it is said."""
        self.result = EpisodeResult(
            status, artifacts={"message": told(error) if status == "judge_error" else short(error)}
        )


def _explained(attempt: Attempt, result: EpisodeResult) -> Mapping[str, Json]:
    """The artifacts, with what the engine noted in the message of a failure."""
    if result.status == "ok" or not attempt.notes:
        return result.artifacts
    message = str(result.artifacts.get("message", ""))
    return {**result.artifacts, "message": "; ".join(filter(None, (message, *dict.fromkeys(attempt.notes))))}


def record(
    attempt: Attempt,
    result: EpisodeResult,
    chunk: Chunk,
    perturbation: Perturbation | None,
    policy_id: str,
    prepared: Prepared,
    seconds: float,
) -> Rollout:
    """The rollout that became of an attempt.

    Args:
        attempt: its episode is over.
        result: what the task said of it.
        chunk: that it belongs to.
        perturbation: the member's, None at the centre.
        prepared: the batch.
        policy_id: of the weights that answered.
        seconds: wall time.
    """
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
        artifacts=_explained(attempt, result),
        prompt_tokens=max(sum(s.spent[0] for s in attempt.steps), attempt.tokens[0]),
        completion_tokens=max(sum(s.spent[1] for s in attempt.steps), attempt.tokens[1]),
        seconds=seconds,
    )
