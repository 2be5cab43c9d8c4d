"""The best program of a finished run on instances that the search never saw: judged once, after the last update.

What the model said is given to a fresh episode of the other split, so a task needs nothing of its own for this. No
updater learns of it, and no test instance is loaded before the search is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import cast

from coevo.errors import CheckFailedError
from coevo.folder import RunFolder
from coevo.frames import read_chunks
from coevo.interfaces import Episode, Task
from coevo.objectives import written
from coevo.records import Best, Completion, Context, EpisodeResult, Example, Json, Rollout

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


def judge(task: Task, rollout: Rollout, wrap: Callable[[Episode], Episode] | None = None) -> dict[str, Json]:
    """Split → `status`, and `objective` and `instances` (their number, 0 where the task does not tell) where it is ok.

    Splits that the task does not have are left out; one that cannot be judged has `judge_error` and a `message`, since
    a search that is over should not fail for it.

    Args:
        task: of a program search: the answer does not depend on the example.
        rollout: a valid one.
        wrap: of the context updater.
    """
    found: dict[str, Json] = {}
    for split in SPLITS:
        try:
            examples = task.examples(split)
        except ValueError:
            continue
        found[split] = _verdict([_attempt(task, example, rollout, wrap) for example in examples])
    return found


def _attempt(
    task: Task, example: Example, rollout: Rollout, wrap: Callable[[Episode], Episode] | None
) -> EpisodeResult:
    """Let a fresh episode judge what was answered."""
    steps = iter(rollout.trajectory.steps)
    try:
        episode = task.episode(example, Context())
        episode = wrap(episode) if wrap else episode
        while requests := episode.requests():
            said = [next(steps) for _ in requests]
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
