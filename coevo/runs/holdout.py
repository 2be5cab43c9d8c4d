"""The best program of a finished run on instances that the search never saw: judged once, after the last update.

What the model said is given to a fresh episode of the other split, so a task needs nothing of its own for this. No
updater learns of it, and no test instance is loaded before the search is over.

The episode is the task's own, never one that the context updater has wrapped: a wrapper that judges several answers
and keeps the best would choose by the held-out instances. Which of its answers was kept is found out on the split of
the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import cast

from coevo.errors import CheckFailedError
from coevo.interfaces import Task
from coevo.numerics.objectives import written
from coevo.records import Completion, Context, EpisodeResult, Example, Json, Rollout, Step
from coevo.reports import Best
from coevo.runs.chunks import read_chunks
from coevo.runs.folder import RunFolder

SPLITS = ("validation", "test")


def find(folder: RunFolder, best: Best) -> Rollout:
    """The rollout that found the best.

    Raises:
        CheckFailedError: it is not among the run's rollouts.
    """
    path = folder.chunk_file(best.generation, best.batch)
    for chunk in read_chunks(path) if path.exists() else ():
        for rollout in chunk:
            if rollout.id == best.rollout:
                return rollout
    raise CheckFailedError(f"rollout {best.rollout!r} is not in {str(path)!r}; the run's folder is damaged")


def judge(task: Task, rollout: Rollout, wrapped: bool = False) -> dict[str, Json]:
    """Split → `status`, and `objective` and `instances` (their number, 0 where the task does not tell) where it is ok.

    Splits that the task does not have are left out; one that cannot be judged has `judge_error` and a `message`, since
    a search that is over should not fail for it.

    Args:
        task: of a program search: the answer does not depend on the example.
        rollout: a valid one.
        wrapped: whether the context updater had the episode in its hands, so that not every answer need be the task's.
    """
    steps = _kept(task, rollout) if wrapped else rollout.trajectory.steps
    found: dict[str, Json] = {}
    for split in SPLITS:
        try:
            examples = task.examples(split)
        except ValueError:
            continue
        if steps is None:
            said = "which of the answers the context updater kept cannot be told: none alone ends as the rollout did"
            found[split] = {"status": "judge_error", "message": said}
        else:
            found[split] = _verdict([_attempt(task, example, steps) for example in examples])
    return found


def _kept(task: Task, rollout: Rollout) -> Sequence[Step] | None:
    """The answers from the one on that alone ends as the rollout did, on its own example; the last such one."""
    steps = rollout.trajectory.steps
    example = next((e for e in task.examples("train") if e.id == rollout.provenance.example), None)
    for first in reversed(range(len(steps))):
        if example is not None and _same(_attempt(task, example, steps[first:]), rollout):
            return steps[first:]
    return None


def _same(result: EpisodeResult, rollout: Rollout) -> bool:
    """Whether a result is of the program that a rollout kept; by its return where the task does not name programs."""
    if result.status != rollout.status:
        return False
    for key in ("code_key", "code"):
        if key in rollout.artifacts:
            return result.artifacts.get(key) == rollout.artifacts[key]
    return result.return_ == rollout.return_


def _attempt(task: Task, example: Example, steps: Sequence[Step]) -> EpisodeResult:
    """Let a fresh episode judge what was answered."""
    answers = iter(steps)
    try:
        episode = task.episode(example, Context())
        while requests := episode.requests():
            said = [next(answers) for _ in requests]
            episode.step([Completion(s.text, s.prompt_ids, s.completion_ids, s.finish_reason) for s in said])
        return episode.result()
    except Exception as error:  # noqa: BLE001 - here a failure becomes data
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        return EpisodeResult("judge_error", artifacts={"message": message})


def _verdict(results: Sequence[EpisodeResult]) -> dict[str, Json]:
    for result in results:
        if result.return_ is None:
            return {"status": result.status, "message": str(result.artifacts.get("message", ""))}
    objectives = [r.metrics.get("objective", cast(float, r.return_)) for r in results]
    instances = sum(len(r.artifacts.get("instances", ())) for r in results)
    return {"status": "ok", "objective": fmean(objectives), "instances": instances}


def told(split: str, verdict: Json) -> str:
    """A verdict in a line."""
    if verdict["status"] != "ok":
        return f"{split}: {verdict['status']}" + (f": {verdict['message']}" if verdict.get("message") else "")
    count = verdict["instances"]
    return f"{split}: objective {written(verdict['objective'])}" + (f" ({count} instances)" if count else "")
