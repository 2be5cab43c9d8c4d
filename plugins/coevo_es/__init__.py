"""Evolution strategies on the weights: the parameter updater `es`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import ParameterUpdater, hookimpl
from coevo_es.updater import EvolutionStrategy

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["EvolutionStrategy"]


@hookimpl
def register_parameter_updaters(updaters: Registry[ParameterUpdater]) -> None:
    """Add `es`."""
    updaters.register("es", EvolutionStrategy)
