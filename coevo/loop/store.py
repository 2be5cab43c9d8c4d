"""What the loop needs around it, as Protocols: a run's folder (`coevo.runs.store` is the one on disk), observers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from coevo.records import Batch, Buffer, Rollout, Update
from coevo.reports import BatchReport, Best, GenerationReport, Ledger


class Chunks(Protocol):
    """Where the chunks of one batch are kept, and what they ask is noted.

    Attributes:
        chunks: those that an earlier process left.
        unanswered: what these had asked that none of their rollouts tells.
    """

    chunks: list[tuple[Rollout, ...]]
    unanswered: Ledger

    def asking(self, chunk: int, most: Ledger) -> None:
        """A chunk is about to ask for `most`: no death of the process makes that unknown when this returns.

        Raises:
            RunError: it cannot be noted.
        """
        ...

    def save(self, rollouts: Sequence[Rollout], unanswered: Ledger) -> None:
        """Save one chunk, and what it asked that none of its rollouts tells; on disk when this returns."""
        ...

    def discard(self) -> None:
        """Forget all of them, also on disk."""
        ...


class Observer(Protocol):
    """Who is told what has happened, after the commit; what it raises is nobody's news."""

    def rollouts_finished(self, generation: int, rollouts: Sequence[Rollout]) -> None:
        """A chunk of rollouts is on disk, by this process or an earlier one."""
        ...

    def batch_finished(self, report: BatchReport) -> None:
        """A batch is committed."""
        ...

    def probe_finished(self, report: BatchReport) -> None:
        """A probe is committed."""
        ...

    def generation_finished(self, report: GenerationReport) -> None:
        """The last batch of a generation is committed."""
        ...


class Store(Protocol):
    """What the loop needs of a run's folder."""

    def open_chunks(self, generation: int, batch: int, asked: Batch) -> AbstractContextManager[Chunks]:
        """The chunks of a batch."""
        ...

    def open_probe(self, generation: int, batch: int) -> AbstractContextManager[Chunks]:
        """The chunks of the probe before that batch."""
        ...

    def commit_probe(self, report: BatchReport, outcomes: Sequence[float | None], ledger: Ledger) -> None:
        """Write a probe's journal line, on disk when this returns.

        `outcomes` are the objectives of all answers in plan order, None for a failure: two probes are compared answer
        by answer.
        """
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
