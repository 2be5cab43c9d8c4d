"""The search baseline: independent draws from one prompt, the context updater `sample`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import ContextUpdater, hookimpl
from coevo_sample.updater import Sample

if TYPE_CHECKING:
    from coevo.host.registry import Registry

__all__ = ["Sample"]


@hookimpl
def register_context_updaters(updaters: Registry[ContextUpdater]) -> None:
    """Add `sample`."""
    updaters.register("sample", Sample)
