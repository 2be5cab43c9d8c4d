"""The engine `openai`: any server that speaks OpenAI's chat completions, over HTTP.

Its weights are somebody else's and fixed, so it answers context-only runs. The openai package makes the
requests; what is ours is how long they are tried, what they may cost, and what becomes of a failure. Imports
nothing heavy: openai is imported when an engine is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import Engine, hookimpl
from coevo_openai.engine import OpenAIEngine

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["OpenAIEngine"]


@hookimpl
def register_engines(engines: Registry[Engine]) -> None:
    """Add `openai`."""
    engines.register("openai", OpenAIEngine)
