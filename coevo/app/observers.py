"""Who is told what happened, and when an anchor is due: both after the commit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import pluggy

from coevo.app.blueprint import Blueprint
from coevo.errors import PluginError
from coevo.host import discovery
from coevo.host.config import RunConfig
from coevo.host.discovery import Plugins
from coevo.host.faults import told
from coevo.interfaces import Engine
from coevo.optional import KeepsAnchors, offers
from coevo.records import EXCLUDED, Rollout
from coevo.reports import BatchReport, GenerationReport, RunInfo
from coevo.runs.folder import RunFolder

Loggers = Sequence[tuple[str, object]]
"""(name, what its factory made)."""


@dataclass(frozen=True, slots=True)
class Audience:
    """Who is told: plugins with observer hooks, and the run's loggers."""

    plugins: Plugins
    loggers: Loggers


def make_loggers(blueprint: Blueprint) -> Loggers:
    """The loggers that a configuration names, each checked for hooks that do not exist or would never be called.

    Raises:
        UserError: a wrong option.
        PluginError: a hook or one of its arguments that there is not.
    """
    made = blueprint.registries.loggers
    loggers = [(name, made.create(name, blueprint.options(name))) for name in blueprint.config.loggers]
    trial = discovery.new_manager()
    for name, logger in loggers:
        register(trial, logger, name)
        for note in discovery.unmarked(logger):
            print(f"coevo: note: logger {name!r}: {note}", file=sys.stderr)
    return loggers


def register(manager: pluggy.PluginManager, logger: object, name: str) -> None:
    """Add a logger to a plugin manager.

    Raises:
        PluginError: it has a hook, or one of its arguments, that there is not.
    """
    discovery.check_signatures(logger, f"logger {name!r}")
    try:
        manager.register(logger, f"logger:{name}")
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginError(f"logger {name!r}: {' '.join(str(error).split())}") from error
    discovery.check_hooks(manager, logger, f"logger {name!r}")


class Observers:
    """Calls the observer hooks of plugins and loggers; also writes anchors, which is no one's to observe.

    It is the `coevo.loop.store.Observer` of a run.
    """

    def __init__(self, audience: Audience, config: RunConfig, folder: RunFolder, engine: Engine) -> None:
        self.manager, self._loggers = audience.plugins.manager, audience.loggers
        self._anchors = Anchors(folder, engine, config.anchor_seconds)
        self._losses = Losses(config.task, config.engine)
        for name, logger in self._loggers:
            register(self.manager, logger, name)

    def run_started(self, info: RunInfo) -> None:
        """The run's folder exists, no batch has begun."""
        self._tell("run_started", info=info)

    def rollouts_finished(self, generation: int, rollouts: Sequence[Rollout]) -> None:
        """A chunk is on disk."""
        self._losses.consider(rollouts)
        self._tell("rollouts_finished", generation=generation, rollouts=rollouts)

    def batch_finished(self, report: BatchReport) -> None:
        """A batch is committed."""
        self._tell("batch_finished", report=report)
        self._anchors.consider(report)

    def probe_finished(self, report: BatchReport) -> None:
        """A probe is committed."""
        self._tell("probe_finished", report=report)

    def generation_finished(self, report: GenerationReport) -> None:
        """The last batch of a generation is committed."""
        self._tell("generation_finished", report=report)

    def run_finished(self, info: RunInfo, error: BaseException | None) -> None:
        """The run is over; loggers are told nothing more."""
        self._tell("run_finished", info=info, error=error)
        for _, logger in self._loggers:
            self.manager.unregister(logger)

    def _tell(self, hook: str, **arguments: object) -> None:
        discovery.notify(self.manager, hook, _complain, **arguments)


class Losses:
    """Tells of the first rollout that the task lost, and of the first that the engine did: later ones are in `show`."""

    def __init__(self, task: str, engine: str) -> None:
        self._whose = {"judge_error": f"task {task!r}", "engine_error": f"engine {engine!r}"}
        self._told: set[str] = set()

    def consider(self, rollouts: Sequence[Rollout]) -> None:
        """Look through a chunk."""
        for rollout in rollouts:
            if rollout.status in EXCLUDED and rollout.status not in self._told:
                self._told.add(rollout.status)
                said = " ".join(str(rollout.artifacts.get("message", "")).split())
                print(
                    f"coevo: note: {self._whose[rollout.status]} failed on rollout {rollout.id}: {said}; such rollouts "
                    f"are left out as {rollout.status!r}, and this is said once",
                    file=sys.stderr,
                )


class Anchors:
    """Writes an fp32 anchor whenever replaying the updates since the last one would take too long."""

    def __init__(self, folder: RunFolder, engine: Engine, limit_seconds: float) -> None:
        self.folder, self.limit = folder.path / "anchors", limit_seconds
        self.engine = engine
        self.pending = 0.0

    def consider(self, report: BatchReport) -> None:
        """Write an anchor after a committed batch if one is due."""
        engine = self.engine
        if not offers(engine, KeepsAnchors) or engine.apply_seconds() - self.pending < self.limit:
            return
        self.folder.mkdir(exist_ok=True)
        engine.save_anchor(self.folder / f"{report.digest}.safetensors")
        self.pending = engine.apply_seconds()


def _complain(plugin: str, error: BaseException) -> None:
    print(f"coevo: observer {plugin!r} failed: {told(error)}; the run goes on", file=sys.stderr)
