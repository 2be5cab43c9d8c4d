"""The logger `progress`: a live view in a terminal, a line a batch where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coevo import hookimpl

if TYPE_CHECKING:
    from coevo.host.registry import Registry
    from coevo_progress.logger import Progress

__all__ = ["register_loggers"]


def progress(plain: bool = False) -> Progress:
    """Show how a run goes while it goes.

    Args:
        plain: a line a batch even in a terminal.
    """
    # rich's live display is loaded by a run that shows it, not by every command.
    from coevo_progress.logger import Progress

    return Progress(plain=plain)


@hookimpl
def register_loggers(loggers: Registry[object]) -> None:
    """Add `progress`."""
    loggers.register("progress", progress)
