"""What a finished batch amounts to: its report and the best rollout so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from coevo.host.shapes import plain
from coevo.loop.services import RunServices
from coevo.records import EXCLUDED, Buffer, Rollout, Update
from coevo.reports import BatchReport, Best, GenerationReport

HOPELESS = 32
"""Answers at the beginning of a run that all have to end with `judge_error` for the task to be given up."""


def lost(chunks: Sequence[Sequence[Rollout]], finished: bool, first: bool) -> str:
    """Why there is no use in going on with a batch, or empty.

    That is where every rollout of the batch was lost to the engine or the judge; and where the task failed on each of
    the `HOPELESS` first of a run, since it will on the rest.

    Args:
        chunks: what there is of the batch.
        finished: whether that is all of it.
        first: whether nothing was judged before.
    """
    if not (finished or first):
        return ""
    rollouts = [rollout for chunk in chunks for rollout in chunk]
    if finished and all(r.status in EXCLUDED for r in rollouts):
        which = "every rollout of the batch"
    elif first and len(rollouts) >= HOPELESS and all(r.status == "judge_error" for r in rollouts):
        which = f"each of the first {len(rollouts)} rollouts"
    else:
        return ""
    message = " ".join(str(rollouts[0].artifacts.get("message", "")).split())
    return f"{which} failed with {rollouts[0].status!r}: {message}"


def copied(rollout: Rollout) -> Rollout:
    """Another of the same: what a plugin does to the one that it is shown is not done to what is committed."""
    return replace(
        rollout,
        provenance=replace(rollout.provenance),
        trajectory=replace(rollout.trajectory),
        metrics=dict(rollout.metrics),
        artifacts=plain(rollout.artifacts, "artifacts"),
    )


def copied_buffer(buffer: Buffer) -> Buffer:
    """`copied`, of a whole batch."""
    members = tuple(replace(member) for member in buffer.members)
    return Buffer(replace(buffer.batch), members, tuple(map(copied, buffer.rollouts)), buffer.moved)


def generation_of(generation: int, reports: Sequence[BatchReport], best: Best | None) -> GenerationReport:
    """What observers are shown of a generation: copies."""
    return GenerationReport(generation, tuple(map(copied_report, reports)), best and replace(best))


def copied_report(report: BatchReport) -> BatchReport:
    """`copied`, of a report; what later batches are measured against is in it."""
    return replace(
        report,
        statuses=dict(report.statuses),
        metrics=dict(report.metrics),
        best=None if report.best is None else replace(report.best),
    )


def objective_of(rollout: Rollout) -> float:
    """The objective of a valid rollout: the task's metric of that name, else its return."""
    assert rollout.return_ is not None
    return rollout.metrics.get("objective", rollout.return_)


def best_of(buffer: Buffer, best: Best | None) -> tuple[Best, Rollout] | None:
    """The first best valid rollout of a search batch, if it beats `best`."""
    if buffer.batch.purpose != "search":
        return None
    found: tuple[Best, Rollout] | None = None
    for rollout in buffer.rollouts:
        if rollout.return_ is not None and (best is None or rollout.return_ > best.return_):
            p = rollout.provenance
            best = Best(rollout.id, p.generation, p.batch, rollout.return_, objective_of(rollout))
            found = (best, rollout)
    return found


def report_of(
    buffer: Buffer,
    update: Update | None,
    services: RunServices,
    best: Best | None,
    digest: str,
    seconds: float,
) -> BatchReport:
    """The report of a batch that took `seconds` of wall time."""
    rollouts = buffer.rollouts
    return BatchReport(
        generation=services.generation,
        batch=services.batch,
        operator=buffer.batch.operator,
        purpose=buffer.batch.purpose,
        adapt=buffer.batch.adapt,
        members=len(buffer.members),
        statuses=dict(sorted(Counter(r.status for r in rollouts).items())),
        objectives=tuple(objective_of(r) for r in rollouts if r.return_ is not None),
        best=best,
        metrics={} if update is None else update.metrics,
        zero_update="" if update is None else update.reason,
        digest=digest,
        calls=sum(r.calls for r in rollouts),
        prompt_tokens=sum(r.prompt_tokens for r in rollouts),
        completion_tokens=sum(r.completion_tokens for r in rollouts),
        seconds=seconds,
    )
