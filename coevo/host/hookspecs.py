"""Every extension point of coevo. Hooks register and observe; Protocols (`coevo.interfaces`) compute.

A plugin implements hooks with `@coevo.hookimpl` and may leave out any argument. Observers run after the
commit, so they cannot lose work; one that raises is reported by name and the run goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import typer

    from coevo.host.registry import Registry
    from coevo.interfaces import ContextUpdater, Engine, ParameterUpdater, Task
    from coevo.records import Rollout
    from coevo.reports import BatchReport, GenerationReport, RunInfo

PROJECT = "coevo"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def register_tasks(tasks: Registry[Task]) -> None:
    """Add tasks by name. Called once a command."""


@hookspec
def register_engines(engines: Registry[Engine]) -> None:
    """Add engines by name; heavy imports belong into the constructor. Called once a command."""


@hookspec
def register_parameter_updaters(updaters: Registry[ParameterUpdater]) -> None:
    """Add optimizers of the weights by name. Called once a command."""


@hookspec
def register_context_updaters(updaters: Registry[ContextUpdater]) -> None:
    """Add optimizers of the context by name. Called once a command."""


@hookspec
def register_loggers(loggers: Registry[object]) -> None:
    """Add loggers by name: objects that implement the observer hooks below. Called once a command."""


@hookspec
def register_commands(app: typer.Typer) -> None:
    """Add commands to the command line, before it is parsed. Called once a command."""


@hookspec
def run_started(info: RunInfo) -> None:
    """A run starts or is resumed; its folder exists, no batch has begun. Called once."""


@hookspec
def rollouts_finished(generation: int, rollouts: Sequence[Rollout]) -> None:
    """A chunk of rollouts is on disk. Called once a chunk, also for chunks reread by a resumed run.

    Those of a probe say so in `provenance.purpose`.
    """


@hookspec
def batch_finished(report: BatchReport) -> None:
    """A batch is committed to the journal. Called once a batch."""


@hookspec
def probe_finished(report: BatchReport) -> None:
    """The centre answered its fixed question and that is committed. Called once a probe (`probe.every`)."""


@hookspec
def generation_finished(report: GenerationReport) -> None:
    """The last batch of a generation is committed. Called once a generation."""


@hookspec
def run_finished(info: RunInfo, error: BaseException | None) -> None:
    """The run is over, `error` says why if it failed or was interrupted. Called exactly once."""
