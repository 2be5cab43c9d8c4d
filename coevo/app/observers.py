"""Who is told what happened, and when an anchor is due: both after the commit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pluggy

from coevo.errors import PluginError
from coevo.host import discovery
from coevo.host.config import RunConfig
from coevo.host.discovery import Plugins, Registries
from coevo.host.faults import told
from coevo.interfaces import Engine
from coevo.optional import KeepsAnchors, offers
from coevo.records import EXCLUDED, Rollout
from coevo.reports import BatchReport
from coevo.runs.folder import RunFolder

Loggers = Sequence[tuple[str, object]]
"""(name, what its factory made)."""


def make_loggers(config: RunConfig, registries: Registries) -> Loggers:
    """The loggers that a configuration names, each checked for hooks that do not exist or would never be called.

    Raises:
        UserError: a wrong option.
        PluginError: a hook or one of its arguments that there is not.
    """
    loggers = [(name, registries.loggers.create(name, config.options.get(name, {}))) for name in config.loggers]
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
    """Calls the observer hooks of plugins and loggers; also writes anchors, which is no one's to observe."""

    def __init__(
        self, plugins: Plugins, loggers: Loggers, config: RunConfig, folder: RunFolder, engine: Engine
    ) -> None:
        self.manager = plugins.manager
        self._anchors = Anchors(folder, engine, config.anchor_seconds)
        self._losses = Losses(config.task, config.engine)
        self._loggers = loggers
        for name, logger in self._loggers:
            register(self.manager, logger, name)

    def __call__(self, hook: str, **arguments: Any) -> None:
        """Tell everyone; `hook` is the name of an observer hook."""
        if hook == "rollouts_finished":
            self._losses.consider(arguments["rollouts"])
        discovery.notify(self.manager, hook, _complain, **arguments)
        if hook == "batch_finished":
            self._anchors.consider(arguments["report"])
        if hook == "run_finished":
            for _, logger in self._loggers:
                self.manager.unregister(logger)


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
