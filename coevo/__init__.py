"""coevo: let an LLM agent improve in its weights and in its context at once.

`coevo.run`, `resume`, `replay` and `export` do what the commands of these names do, and `coevo.load` reads a run.
Plugins need `hookimpl`, the records and the Protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo.errors import CoevoError, MissingExtraError, RunError, UserError
from coevo.host.hookspecs import hookimpl
from coevo.interfaces import (
    Brief,
    Capabilities,
    ContextUpdater,
    Endpoint,
    Engine,
    Episode,
    ParameterUpdater,
    Policy,
    Reference,
    ServedPolicy,
    Services,
    Task,
)
from coevo.records import (
    Batch,
    Buffer,
    Completion,
    Context,
    EpisodeResult,
    Example,
    Perturbation,
    Request,
    Rollout,
    Sampling,
    SeedsUpdate,
    Step,
    Trajectory,
)
from coevo.reports import BatchReport, GenerationReport, RunInfo

if TYPE_CHECKING:
    from coevo.app.launch import resume, run
    from coevo.app.parts import check_engine, make_engine
    from coevo.app.saved import Run, export, load, replay

__all__ = [
    "Batch",
    "BatchReport",
    "Brief",
    "Buffer",
    "Capabilities",
    "CoevoError",
    "Completion",
    "Context",
    "ContextUpdater",
    "Endpoint",
    "Engine",
    "Episode",
    "EpisodeResult",
    "Example",
    "GenerationReport",
    "MissingExtraError",
    "ParameterUpdater",
    "Perturbation",
    "Policy",
    "Reference",
    "Request",
    "Rollout",
    "Run",
    "RunError",
    "RunInfo",
    "Sampling",
    "SeedsUpdate",
    "ServedPolicy",
    "Services",
    "Step",
    "Task",
    "Trajectory",
    "UserError",
    "check_engine",
    "export",
    "hookimpl",
    "load",
    "make_engine",
    "replay",
    "resume",
    "run",
]


_LAZY = {
    **dict.fromkeys(("resume", "run"), "launch"),
    **dict.fromkeys(("check_engine", "make_engine"), "parts"),
    **dict.fromkeys(("Run", "export", "load", "replay"), "saved"),
}


def __getattr__(name: str) -> object:
    # These pull in the whole application; a plugin that imports coevo for its records should not pay that.
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(f"coevo.app.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'coevo' has no attribute {name!r}")
