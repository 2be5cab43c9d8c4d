"""What is known of a study's runs while they go, and what the user is told meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coevo.records import Json
from coevo.report.numbers import duration
from coevo.tools.study.comparison import comparison
from coevo.tools.study.frame import Cell
from coevo.tools.study.output import Place, publish
from coevo.tools.study.plan import PlannedRun, Study
from coevo.tools.study.results import Reading, read
from coevo.tools.study.tables import ending


@dataclass(slots=True)
class Progress:
    """All runs of a study as last read.

    `clock` gives seconds; a test brings its own.
    """

    study: Study
    quiet: bool = False
    clock: Callable[[], float] = time.monotonic
    readings: dict[Path, Reading] = field(default_factory=dict[Path, Reading])
    _began: float = 0.0

    def __post_init__(self) -> None:
        self._began = self.clock()
        self.readings = {run.subject.path: read(run.subject) for run in self.study.runs}

    def missing(self) -> list[PlannedRun]:
        """Runs that are not finished, in the study's order."""
        return [run for run in self.study.runs if not self.readings[run.subject.path].finished]

    def result(self) -> dict[str, Json]:
        """The table so far."""
        return comparison(self.study.frame, list(self.readings.values()))

    def starts(self, run: PlannedRun) -> None:
        """Say which run of how many, and how long it will take."""
        number = self.study.runs.index(run) + 1
        verb = "goes on" if run.subject.begun else "starts"
        left = remaining(self.missing(), self.readings)
        about = "" if left is None else f", about {duration(left)} left"
        elapsed = duration(self.clock() - self._began)
        self._say(f"run {number} of {len(self.study.runs)}, {run.subject.label}, {verb}; {elapsed} elapsed{about}")

    def ended(self, run: PlannedRun, failure: str) -> None:
        """Read what the run has come to, and keep the table on disk up to date."""
        self.readings[run.subject.path] = reading = read(run.subject, failure)
        publish(Place(self.study.folder), self.study.frame, self.result(), list(self.readings.values()), figures=False)
        if failure:
            print(f"coevo: run {run.subject.label!r} failed: {' '.join(failure.split())}", file=sys.stderr, flush=True)
        else:
            self._say(f"{run.subject.label} is {ending(reading)}")

    def _say(self, text: str) -> None:
        if not self.quiet:
            print(f"coevo: study {self.study.frame.name}: {text}", file=sys.stderr, flush=True)


def remaining(missing: Sequence[PlannedRun], readings: Mapping[Path, Reading]) -> float | None:
    """Seconds that the missing runs will take: as long as their arm's finished ones, else as all finished ones.

    None where no run has finished.
    """
    known: dict[tuple[Cell, str], list[float]] = {}
    for reading in readings.values():
        if reading.finished:
            known.setdefault((reading.run.cell, reading.run.arm), []).append(reading.numbers["seconds"] or 0.0)
    every = [seconds for of_arm in known.values() for seconds in of_arm]
    if not every:
        return None
    left = 0.0
    for run in missing:
        of_arm = known.get((run.subject.cell, run.subject.arm), every)
        done = readings[run.subject.path].numbers["seconds"] or 0.0
        left += max(0.0, sum(of_arm) / len(of_arm) - done)
    return left
