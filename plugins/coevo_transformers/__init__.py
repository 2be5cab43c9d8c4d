"""The engine `transformers`: any dense text model that Hugging Face transformers loads, in this process.

What is ours is the loop around the model (`decode`), the sampling (`sampler`) and the weights (`served`); the
model runs through its own forward. Imports nothing heavy: torch and transformers are imported when an engine
is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import Engine, hookimpl
from coevo_transformers.engine import TransformersEngine

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["TransformersEngine"]


@hookimpl
def register_engines(engines: Registry[Engine]) -> None:
    """Add `transformers`."""
    engines.register("transformers", TransformersEngine)
