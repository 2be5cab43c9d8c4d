"""Evolution of Heuristics: the context updater `eoh`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import ContextUpdater, hookimpl
from coevo_eoh.updater import EvolutionOfHeuristics

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["EvolutionOfHeuristics"]


@hookimpl
def register_context_updaters(updaters: Registry[ContextUpdater]) -> None:
    """Add `eoh`."""
    updaters.register("eoh", EvolutionOfHeuristics)
