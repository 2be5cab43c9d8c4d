"""Runs what a study lacks: starts what is new, resumes what was cut, reads what is finished."""

from __future__ import annotations

import fcntl
import gc
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from coevo.app.affording import check_first_batch, check_tokens, token_counter
from coevo.app.blueprint import Blueprint
from coevo.errors import CoevoError, RunInterrupted, UserError
from coevo.files import open_own
from coevo.host.discovery import Plugins, Registries
from coevo.loop.services import RunServices
from coevo.machine.interrupts import staying, terminating
from coevo.optional import closed
from coevo.records import Json
from coevo.report.numbers import duration
from coevo.runs.folder import RunFolder
from coevo.tools.study.frame import Cell
from coevo.tools.study.output import publish
from coevo.tools.study.plan import PlannedRun, Study, check_same, read_study, said_of
from coevo.tools.study.results import FAILED, Reading, read
from coevo.tools.study.tables import ending


def run_study(
    file: str | Path, runs: str = "runs", plugins: Plugins | None = None, *, quiet: bool = False, live: bool = True
) -> dict[str, Json]:
    """See a study to its end; returns what `coevo study --json` prints. What is finished is not repeated.

    Args:
        file: the study's TOML file.
        runs: the folder of the runs.
        plugins: already loaded ones.
        quiet: tell nothing but failures.
        live: let every run show its progress on standard output.

    Raises:
        UserError: something cannot be done as asked; no run was started.
        CheckFailedError: the journal of a run was changed.
        RunInterrupted: Ctrl-C or SIGTERM; the same command goes on.
    """
    with staying(), terminating("coevo: interrupted; go on with the same command"):
        return _run_study(file, runs, plugins, quiet=quiet, live=live)


def _run_study(file: str | Path, runs: str, plugins: Plugins | None, *, quiet: bool, live: bool) -> dict[str, Json]:
    study, plugins = read_study(Path(file), runs, plugins)
    if (study.folder / "config.toml").exists():
        raise UserError(f"{str(study.folder)!r} is a run; give the study another name")
    registries = plugins.registries()
    damaged = [(run, reason) for run in study.runs if run.subject.begun and (reason := check_same(run, registries))]
    progress = Progress(study, quiet)
    for run, reason in damaged:
        progress.readings[run.subject.path] = Reading(run.subject, FAILED, reason)
    if missing := progress.missing():
        try:
            for run in {(run.subject.cell, run.subject.arm): run for run in missing}.values():
                check_parts(run, registries)
            with _claimed(study):
                _run_all(missing, progress, plugins, show=live and not quiet)
        except (KeyboardInterrupt, RunInterrupted):
            raise RunInterrupted(f"interrupted; go on with: {_command(study, runs)}") from None
    return publish(study.folder, study.frame, list(progress.readings.values()))


def _command(study: Study, runs: str) -> str:
    return shlex.join(["coevo", "study", str(study.file), *(["--runs", runs] if runs != "runs" else [])])


def check_parts(run: PlannedRun, registries: Registries) -> None:
    """What an arm's updaters and its model refuse is refused before the first run of any arm.

    Raises:
        UserError: the arm and what is wrong.
    """
    blueprint = Blueprint(run.config, registries)
    with said_of(run.subject.arm, run.subject.cell):
        task = blueprint.make_task()
        try:
            services = RunServices(run.config.seed, run.subject.path)
            parts = blueprint.make_updaters(task.brief(), services)
            blueprint.check_model()
            check_tokens(blueprint, task)
            check_first_batch(blueprint, task, parts, services, token_counter(blueprint))
        finally:
            closed(task)


@contextmanager
def _claimed(study: Study) -> Generator[None]:
    """Hold the study for this process: two of them would run its runs side by side.

    Raises:
        UserError: another process has it, or its folder cannot be made.
    """
    try:
        study.folder.mkdir(parents=True, exist_ok=True)
        file = open_own(study.folder / "lock", "a+b", 0)
    except OSError as error:
        raise UserError(
            f"cannot write in the study's folder {str(study.folder)!r}: {error.strerror}; choose another with --runs"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(
                f"study {study.frame.name!r} is going in process {file.read().decode(errors='replace').strip()}"
            ) from None
        with suppress(OSError):  # on a full disk the number is missing, and the lock holds all the same
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield


def _run_all(missing: Sequence[PlannedRun], progress: Progress, plugins: Plugins, *, show: bool) -> None:
    for run in missing:
        if run.subject.begun:
            # Somebody may be at it with `coevo resume`: the run itself says so, before another is started.
            with RunFolder(run.subject.path).lock():
                pass
    for run in missing:
        progress.starts(run)
        progress.ended(run, _run_one(run, plugins, show=show))
        # Two models at once may be more than there is memory.
        gc.collect()


def _run_one(run: PlannedRun, plugins: Plugins, *, show: bool) -> str:
    """Start a run or go on with it; returns why it failed, empty if it did not."""
    from coevo.app.launch import resume
    from coevo.app.launch import run as start

    try:
        if run.subject.begun:
            resume(str(run.subject.path), run.config.runs, plugins, quiet=not show)
        else:
            start(run.config if show else run.config.model_copy(update={"loggers": ()}), plugins)
    except RunInterrupted:
        raise
    except CoevoError as error:
        # How the run alone is gone on with is not said: the study goes on with all of them.
        said = " ".join(str(error).split()).partition("; go on with: ")[0]
        told, another, _ = said.partition("; choose another with ")
        return f"{told}; rename or remove it" if another else said
    except Exception as error:  # noqa: BLE001 - a fault in one arm must not end a night of the others
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    return ""


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
        publish(self.study.folder, self.study.frame, list(self.readings.values()), figures=False)
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
