"""The loop (design section 1): both updaters learn from the same buffer, generation by generation.

It holds plain objects and does no I/O of its own: the store saves, `observe` tells. A batch is committed by
one journal line, after everything that it names is on disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from coevo.buffer import default_credit
from coevo.errors import RunError, UserError
from coevo.interfaces import Brief, ContextUpdater, Engine, Ledger, ParameterUpdater, Task
from coevo.outcome import best_of, report_of
from coevo.planning import Planner, Prepared, a_batch
from coevo.records import EXCLUDED, Batch, BatchReport, Best, Buffer, GenerationReport, Rollout, Update
from coevo.rollouts import Collector
from coevo.services import RunServices


class Chunks(Protocol):
    """Where the chunks of one batch are kept; `chunks` are those that an earlier run left."""

    chunks: list[tuple[Rollout, ...]]

    def append(self, rollouts: Sequence[Rollout]) -> None:
        """Save one chunk, on disk when this returns."""
        ...


class Store(Protocol):
    """What the loop needs of a run's folder."""

    def open_chunks(self, generation: int, batch: int, asked: Batch) -> AbstractContextManager[Chunks]:
        """The chunks of a batch."""
        ...

    def save_best(self, best: Best, rollout: Rollout) -> None:
        """Write `best/`."""
        ...

    def commit(
        self,
        report: BatchReport,
        buffer: Buffer,
        update: Update | None,
        states: Mapping[str, Any],
        ledger: Ledger,
    ) -> None:
        """Write the journal line, on disk when this returns."""
        ...


@dataclass(slots=True)
class Loop:
    """One run's parts. `observe(hook, **arguments)` calls the observers."""

    task: Task
    brief: Brief
    engine: Engine
    parameters: ParameterUpdater
    contexts: ContextUpdater
    planner: Planner
    collector: Collector
    services: RunServices
    store: Store
    observe: Callable[..., None]
    generations: int
    best: Best | None = None
    reports: list[BatchReport] = field(default_factory=list[BatchReport])

    async def run(self, generation: int, batch: int) -> str:
        """Evolve from (generation, batch) on; returns why it ended: `generations`, `calls` or `tokens`."""
        for g in range(generation, self.generations):
            while True:
                self.services.generation, self.services.batch = g, batch
                asked = a_batch(self.contexts.ask())
                if asked is None:
                    break
                members = tuple(self.parameters.ask(asked)) if asked.adapt else ()
                prepared = self.planner.prepare(asked, members)
                if reason := self.planner.refusal(prepared):
                    if (g, batch) == (0, 0):
                        raise UserError(
                            f"--{reason} is too small for the first batch, which asks for {prepared.size} answers; "
                            "nothing was started"
                        )
                    return reason
                self.reports.append(await self._step(prepared))
                batch += 1
            self.observe("generation_finished", report=GenerationReport(g, tuple(self.reports), self.best))
            self.reports, batch = [], 0
        return "generations"

    async def _step(self, prepared: Prepared) -> BatchReport:
        started = time.monotonic()
        buffer = await self._collect(prepared)
        credit = getattr(self.contexts, "credit", None)
        buffer = credit(buffer) if credit else default_credit(buffer, self.brief.failure)
        update = self.parameters.tell(buffer) if buffer.batch.adapt else None
        self.contexts.tell(buffer)
        if update is not None:
            self.engine.apply(update)
        return self._commit(buffer, update, started)

    async def _collect(self, prepared: Prepared) -> Buffer:
        batch, g = prepared.batch, self.services.generation
        with self.store.open_chunks(g, self.services.batch, batch) as kept:
            for rollouts in kept.chunks:
                self.observe("rollouts_finished", generation=g, rollouts=rollouts)

            def finished(rollouts: Sequence[Rollout]) -> None:
                kept.append(rollouts)
                self.observe("rollouts_finished", generation=g, rollouts=rollouts)

            await self.collector.collect(prepared, prepared.chunks[len(kept.chunks) :], finished)
            everything = tuple(rollout for rollouts in kept.chunks for rollout in rollouts)
        if all(r.status in EXCLUDED for r in everything):
            first = everything[0]
            raise RunError(
                f"every rollout of the batch failed with {first.status!r}: {first.artifacts.get('message', '')}"
            )
        moved = getattr(self.engine, "moved", None)
        share = moved(prepared.members[0]) if moved and prepared.members else None
        return Buffer(batch, prepared.members, everything, share)

    def _commit(self, buffer: Buffer, update: Update | None, started: float) -> BatchReport:
        better = best_of(buffer, self.best)
        if better is not None:
            self.best, rollout = better
            self.store.save_best(self.best, rollout)
        report = report_of(buffer, update, self.services, self.best, self.engine.digest(), time.monotonic() - started)
        self.services.spend(report)
        states = {"parameters": self.parameters.state_dict(), "contexts": self.contexts.state_dict()}
        self.store.commit(report, buffer, update, states, self.services.ledger)
        self.observe("batch_finished", report=report)
        return report
