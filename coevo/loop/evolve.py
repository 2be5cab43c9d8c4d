"""The loop (design section 1): both updaters learn from the same buffer, generation by generation.

It holds plain objects and does no I/O of its own: the store saves, the observers tell. A batch is committed by
one journal line, after everything that it names is on disk.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from coevo.errors import RunError
from coevo.interfaces import Brief, ContextUpdater, Engine, ParameterUpdater, Task
from coevo.loop import outcome
from coevo.loop.collector import Collector
from coevo.loop.planner import Planner, Prepared
from coevo.loop.services import RunServices
from coevo.loop.store import Chunks, Observer, Store
from coevo.numerics.credit import default_credit, with_credits
from coevo.optional import Credits, Moves, Reaches, Spends, offers
from coevo.records import Batch, Buffer, Rollout, Update
from coevo.reports import BatchReport, Best


@dataclass(slots=True)
class Loop:
    """One run's parts."""

    task: Task
    brief: Brief
    engine: Engine
    parameters: ParameterUpdater
    contexts: ContextUpdater
    planner: Planner
    collector: Collector
    services: RunServices
    store: Store
    observers: Observer
    generations: int
    best: Best | None = None
    reports: list[BatchReport] = field(default_factory=list[BatchReport])

    async def run(self, generation: int, batch: int) -> str:
        """Evolve from (generation, batch) on; returns why it ended: `generations`, `calls` or `tokens`."""
        for g in range(generation, self.generations):
            if reason := await self._generation(g, batch):
                break
            self.observers.generation_finished(outcome.generation_of(g, self.reports, self.best))
            self.reports, batch = [], 0
        else:
            reason = "generations"
            self.services.generation, self.services.batch = self.generations, 0
        if self.planner.last_probe_due():
            await self._probe()
        return reason

    async def _generation(self, g: int, batch: int) -> str:
        """All batches of a generation from `batch` on; returns which budget ended it, or empty."""
        while True:
            self.services.generation, self.services.batch = g, batch
            asked = self.contexts.ask()
            if asked is None:
                return ""
            prepared = self._prepare(asked)
            probed = self.planner.probe_due(prepared)
            if reason := self.planner.refusal(prepared, probed):
                return reason
            if probed:
                await self._probe(prepared, *self.planner.reserve())
                prepared = self._prepare(asked)  # what the probe spent may have moved sigma
            self.reports.append(await self._step(prepared))
            batch += 1

    def _prepare(self, asked: Batch) -> Prepared:
        return self.planner.prepare(asked, tuple(self.parameters.ask(asked)) if asked.adapt else ())

    async def _probe(self, *planned: Prepared) -> None:
        """Ask the centre the same as always; it changes nothing but what has been spent."""
        started, at = time.monotonic(), self.services
        prepared = self.planner.prepare_probe()
        self.collector.tries = self.planner.tries([prepared, *planned], probe=True)
        everything = await self._collect(prepared, self.store.open_probe(at.generation, at.batch))
        probe, seconds = Buffer(prepared.batch, (), everything), time.monotonic() - started
        report = self._with_spending(outcome.report_of(probe, None, at, None, self.engine.digest(), seconds))
        at.spend(report)
        outcomes = [None if r.return_ is None else outcome.objective_of(r) for r in everything]
        self.store.commit_probe(report, outcomes, at.ledger)
        self.planner.probed.add((at.generation, at.batch))
        self.observers.probe_finished(outcome.copied_report(report))

    async def _step(self, prepared: Prepared) -> BatchReport:
        started, at = time.monotonic(), self.services
        self.collector.tries = self.planner.tries([prepared, *self.planner.reserve()])
        everything = await self._collect(prepared, self.store.open_chunks(at.generation, at.batch, prepared.batch))
        members, engine, contexts = prepared.members, self.engine, self.contexts
        share = engine.moved(members[0]) if members and offers(engine, Moves) else None
        own = Buffer(prepared.batch, members, everything, share)
        buffer = outcome.copied_buffer(own)
        buffer = contexts.credit(buffer) if offers(contexts, Credits) else default_credit(buffer, self.brief.failure)
        own = with_credits(own, [rollout.credit for rollout in buffer.rollouts])
        update = self.parameters.tell(buffer) if own.batch.adapt else None
        self.contexts.tell(buffer)
        if update is not None:
            self.engine.apply(update)
        return self._commit(own, update, started)

    async def _collect(self, prepared: Prepared, chunks: AbstractContextManager[Chunks]) -> tuple[Rollout, ...]:
        g, tries = self.services.generation, self.collector.tries
        first = g == 0 and not (self.reports or self.planner.probed)
        with chunks as kept:
            tries.keep(kept)
            for rollouts in kept.chunks:
                self.observers.rollouts_finished(g, tuple(map(outcome.copied, rollouts)))

            def check() -> None:
                if reason := outcome.lost(kept.chunks, len(kept.chunks) == len(prepared.chunks), first):
                    kept.discard()  # once what is wrong is mended, a resumed run asks again
                    raise RunError(reason)

            def finished(rollouts: Sequence[Rollout]) -> None:
                tries.save(rollouts)
                self.observers.rollouts_finished(g, tuple(map(outcome.copied, rollouts)))
                check()

            await self.collector.collect(prepared, prepared.chunks[len(kept.chunks) :], finished)
            check()
            return tuple(rollout for rollouts in kept.chunks for rollout in rollouts)

    def _commit(self, buffer: Buffer, update: Update | None, started: float) -> BatchReport:
        better = outcome.best_of(buffer, self.best)
        if better is not None:
            self.best, rollout = better
            self.store.save_best(self.best, rollout)
        seconds = time.monotonic() - started
        report = outcome.report_of(buffer, update, self.services, self.best, self.engine.digest(), seconds)
        if update is not None and not update.reason and offers(self.engine, Reaches):
            report = replace(report, metrics={**report.metrics, **self.engine.reached()})
        report = self._with_spending(report)
        self.services.spend(report)
        states = {"parameters": self.parameters.state_dict(), "contexts": self.contexts.state_dict()}
        self.store.commit(report, buffer, update, states, self.services.ledger)
        self.observers.batch_finished(outcome.copied_report(report))
        return report

    def _with_spending(self, report: BatchReport) -> BatchReport:
        metrics = {**report.metrics, **self.engine.spent()} if offers(self.engine, Spends) else report.metrics
        return replace(self.collector.tries.booked(report), metrics=metrics)
