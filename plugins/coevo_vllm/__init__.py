"""The engine `vllm`: any dense text model that vLLM runs, on CUDA or on the CPU, one device or several.

What is ours is what vLLM generates with: every member is made from the fp32 master in checkpoint coordinates and
goes through vLLM's own weight reload, so that fused, sharded and packed layouts are vLLM's to know. Imports nothing
heavy: torch and vllm are imported when an engine is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import Engine, hookimpl
from coevo_vllm.engine import VllmEngine

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["VllmEngine"]


@hookimpl
def register_engines(engines: Registry[Engine]) -> None:
    """Add `vllm`."""
    engines.register("vllm", VllmEngine)
