"""coevo: let an LLM agent improve in its weights and in its context at once.

`coevo.run(config)` does what `coevo run` does. Plugins need `hookimpl`, the records and the Protocols.
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
    from coevo.app.launch import run
    from coevo.app.parts import check_engine, make_engine

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
    "hookimpl",
    "make_engine",
    "run",
]


def __getattr__(name: str) -> object:
    # These pull in the whole application; a plugin that imports coevo for its records should not pay that.
    if name == "run":
        from coevo.app.launch import run

        return run
    if name in ("check_engine", "make_engine"):
        from coevo.app import parts as assembly

        return getattr(assembly, name)
    raise AttributeError(f"module 'coevo' has no attribute {name!r}")
