"""The engine `ray`: a pool of any engine, one Ray actor a worker, on one machine or a cluster.

Imports nothing heavy: ray is imported when an engine is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import Engine, hookimpl
from coevo_ray.engine import RayEngine

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["RayEngine"]


@hookimpl
def register_engines(engines: Registry[Engine]) -> None:
    """Add `ray`."""
    engines.register("ray", RayEngine)
