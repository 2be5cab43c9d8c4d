"""What a loop commits, written to a run's folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from coevo.errors import did_you_mean
from coevo.files import write_atomic
from coevo.interfaces import Task
from coevo.loop.services import Unbooked, place_of
from coevo.optional import WritesBest, offers
from coevo.records import Batch, Buffer, Json, Rollout, Update
from coevo.reports import BatchReport, Best, Ledger
from coevo.runs.asked import AskedChunks
from coevo.runs.codec import dumps, to_json
from coevo.runs.folder import ASKED, RunFolder
from coevo.runs.journal import update_to_json


class RunStore:
    """`coevo.loop.evolve.Store` on a run's folder. `unbooked` is kept up to date with `asked.jsonl`."""

    def __init__(self, folder: RunFolder, task: Task, unbooked: Unbooked | None = None) -> None:
        self.folder = folder
        self.task = task
        self.unbooked = unbooked or Unbooked()
        self._unread: set[str] = set()

    def open_chunks(self, generation: int, batch: int, asked: Batch) -> AskedChunks:
        """Write the batch's contexts, then open its chunks."""
        self._note_unread(asked)
        lines = [dumps({"id": c.id, **to_json(c)}) for c in asked.contexts]
        name = f"g{generation:04d}-b{batch:02d}.jsonl"
        write_atomic(self.folder.path / "contexts" / name, "\n".join(lines) + "\n")
        return self._open(place_of(generation, batch))

    def _note_unread(self, asked: Batch) -> None:
        """Say, once, which components of contexts the task does not read, if it tells which it does."""
        read = list(self.task.brief().components)
        given = dict.fromkeys(name for context in asked.contexts for name in context.components)
        for name in given if read else ():
            if name not in read and name not in self._unread:
                self._unread.add(name)
                print(
                    f"coevo: note: the context has a component {name!r}, which is not among the brief's components of "
                    f"the task, so that the model may never see it{did_you_mean(name, read)}",
                    file=sys.stderr,
                )

    def open_probe(self, generation: int, batch: int) -> AskedChunks:
        """The chunks of the probe before that batch; its context is the task's own."""
        return self._open(place_of(generation, batch, probe=True))

    def _open(self, place: str) -> AskedChunks:
        return AskedChunks(self.folder.path / "rollouts", place, self.folder.path / ASKED, self.unbooked)

    def commit_probe(self, report: BatchReport, outcomes: Sequence[float | None], ledger: Ledger) -> None:
        """One journal line."""
        line = {"kind": "probe", **to_json(report), "outcomes": list(outcomes), **_spent(report, ledger)}
        self.folder.journal.append(line)
        self.unbooked.commit()

    def save_best(
        self, best: Best, rollout: Rollout, splits: Mapping[str, Json] | None = None, lines: Sequence[str] = ()
    ) -> None:
        """Write `best/best.json` and what the task has to show for it, under a header that says how it was found.

        Args:
            best: what is kept apart from any population.
            rollout: that found it.
            splits: what it is worth on other splits, once that is known.
            lines: the same for the header.
        """
        header = "\n".join([*self._how(best, rollout), *lines])
        for name, text in self._best_files(rollout, header).items():
            write_atomic(self.folder.path / "best" / name, text)
        shown = {"answer": rollout.artifacts.get("answer", ""), **to_json(best)}
        if splits is not None:
            shown["splits"] = splits
        write_atomic(self.folder.path / "best" / "best.json", dumps(shown, indent=1) + "\n")

    def _how(self, best: Best, rollout: Rollout) -> list[str]:
        config, operator = self.folder.config(), rollout.provenance.operator
        thought = " ".join(str(rollout.artifacts.get("thought", "")).split())
        by = f"operator {operator}, " if operator else ""
        return [
            f"Found by coevo in run {self.folder.name!r}: generation {best.generation}, batch {best.batch}, "
            f"{by}rollout {best.rollout}.",
            ", ".join(f"{key} {config[key]}" for key in ("task", "param", "context", "model", "seed") if key in config),
            *([f"Idea: {thought}"] if thought else []),
            f"Objective {best.objective} on the search set.",
        ]

    def _best_files(self, rollout: Rollout, header: str) -> Mapping[str, str]:
        return self.task.best_files(rollout, header) if offers(self.task, WritesBest) else {}

    def commit(
        self,
        report: BatchReport,
        buffer: Buffer,
        update: Update | None,
        states: Mapping[str, Json],
        ledger: Ledger,
    ) -> None:
        """The commit point: one journal line."""
        line: dict[str, Json] = {
            "kind": "batch",
            **to_json(report),
            "population": [{"seed": f"{m.seed:016x}", "sigma": m.sigma} for m in buffer.members],
            "credits": [r.credit for r in buffer.rollouts],
            "update": update_to_json(update),
            "states": states,
            **_spent(report, ledger),
        }
        self.folder.journal.append(line)
        self.unbooked.commit()

    def stop(self, reason: str, message: str = "", **place: int) -> None:
        """Note why (and before which generation and batch) the run ended.

        After a kill there is no such line, and the run counts as interrupted.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")
        line = {"kind": "stop", "reason": reason, "message": message, **place, "time": {"at": at}}
        self.folder.journal.append(line)


def _spent(report: BatchReport, ledger: Ledger) -> dict[str, Json]:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    return {"ledger": to_json(ledger), "time": {"seconds": report.seconds, "at": at}}
