"""The updaters that update nothing: `none` for the parameters and `none` for the context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import ContextUpdater, ParameterUpdater, hookimpl
from coevo_none.updaters import FixedContext, FixedParameters

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["FixedContext", "FixedParameters"]


@hookimpl
def register_parameter_updaters(updaters: Registry[ParameterUpdater]) -> None:
    """Add `none`: the weights stay as they are."""
    updaters.register("none", FixedParameters)


@hookimpl
def register_context_updaters(updaters: Registry[ContextUpdater]) -> None:
    """Add `none`: the context stays the task's own."""
    updaters.register("none", FixedContext)
