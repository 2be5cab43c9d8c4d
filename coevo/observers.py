"""Who is told what happened, and when an anchor is due: both after the commit."""

from __future__ import annotations

import sys
from typing import Any

from coevo import discovery
from coevo.config import RunConfig
from coevo.discovery import Plugins, Registries
from coevo.folder import RunFolder
from coevo.interfaces import Engine
from coevo.records import BatchReport


class Observers:
    """Calls the observer hooks of plugins and loggers; also writes anchors, which is no one's to observe."""

    def __init__(
        self, plugins: Plugins, registries: Registries, config: RunConfig, folder: RunFolder, engine: Engine
    ) -> None:
        self.manager = plugins.manager
        self._anchors = Anchors(folder, engine, config.anchor_seconds)
        self._loggers = [
            (name, registries.loggers.create(name, config.options.get(name, {}))) for name in config.loggers
        ]
        for name, logger in self._loggers:
            self.manager.register(logger, f"logger:{name}")

    def __call__(self, hook: str, **arguments: Any) -> None:
        """Tell everyone; `hook` is the name of an observer hook."""
        discovery.notify(self.manager, hook, _complain, **arguments)
        if hook == "batch_finished":
            self._anchors.consider(arguments["report"])
        if hook == "run_finished":
            for _, logger in self._loggers:
                self.manager.unregister(logger)


class Anchors:
    """Writes an fp32 anchor whenever replaying the updates since the last one would take too long."""

    def __init__(self, folder: RunFolder, engine: Engine, limit_seconds: float) -> None:
        self.folder, self.limit = folder.path / "anchors", limit_seconds
        self.save = getattr(engine, "save_anchor", None)
        self.pending = 0.0
        self.seconds = getattr(engine, "apply_seconds", lambda: 0.0)

    def consider(self, report: BatchReport) -> None:
        """Write an anchor after a committed batch if one is due."""
        if self.save is None or self.seconds() - self.pending < self.limit:
            return
        self.folder.mkdir(exist_ok=True)
        self.save(self.folder / f"{report.digest}.safetensors")
        self.pending = self.seconds()


def _complain(plugin: str, error: Exception) -> None:
    said = " ".join(str(error).split())
    print(f"coevo: observer {plugin!r} failed: {type(error).__name__}: {said}; the run goes on", file=sys.stderr)
