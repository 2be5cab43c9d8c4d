"""Heuristic design: a model fills a hole in a program, a sandbox runs the program on a problem's instances.

Every folder under `problems/` is a task of that name; `heuristics` is the task for a folder elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coevo import hookimpl
from coevo.files import read_toml
from coevo.records import Json
from coevo_heuristics.commands import add_check
from coevo_heuristics.problem import HoleKind
from coevo_heuristics.task import HeuristicTask

if TYPE_CHECKING:
    import typer

    from coevo.host.registry import Registry
    from coevo.interfaces import Task

__all__ = ["HeuristicTask", "from_folder", "register_commands", "register_tasks"]

_PROBLEMS = Path(__file__).parent / "problems"


@hookimpl
def register_tasks(tasks: Registry[Task]) -> None:
    """Register the problems that come with coevo, and `heuristics` for any other folder."""
    tasks.register("heuristics", HeuristicTask, "design a heuristic for the problem in a folder")
    for file in sorted(_PROBLEMS.glob("*/problem.toml")):
        # Only the title is read here: a command that lists tasks should not check them.
        title = str(read_toml(file).get("title", ""))
        tasks.register(file.parent.name, _factory(file.parent), title)


@hookimpl
def register_commands(app: typer.Typer) -> None:
    """Add `coevo check`."""
    add_check(app, _PROBLEMS)


def from_folder(folder: str | Path, **options: Any) -> HeuristicTask:
    """The task of a problem folder; `options` are those of `HeuristicTask`.

    Raises:
        UserError: the folder is no problem, or something in it is wrong.
    """
    return HeuristicTask(str(folder), **options)


def _factory(folder: Path) -> Callable[..., HeuristicTask]:
    """`HeuristicTask` for one folder; its signature declares the options."""

    def make(
        hole: HoleKind | None = None,
        workers: int | None = None,
        cpu_seconds: float | None = None,
        memory_mb: int | None = None,
        instance_options: dict[str, Json] | None = None,
        cache: bool = True,
    ) -> HeuristicTask:
        return HeuristicTask(
            folder=str(folder),
            hole=hole,
            workers=workers,
            cpu_seconds=cpu_seconds,
            memory_mb=memory_mb,
            instance_options=instance_options,
            cache=cache,
        )

    make.__doc__ = HeuristicTask.__init__.__doc__
    # An attribute, as a method of a class would be: `coevo options` asks for it.
    vars(make)["nested_options"] = partial(HeuristicTask.nested_options, str(folder))
    return make
