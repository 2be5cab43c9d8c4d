"""What a finished batch amounts to: its report and the best rollout so far."""

from __future__ import annotations

from collections import Counter

from coevo.records import BatchReport, Best, Buffer, Rollout, Update
from coevo.services import RunServices


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
