"""`coevo new problem` and `coevo new plugin`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from coevo.cli.output import emit
from coevo.host.discovery import Plugins

Folder: TypeAlias = Annotated[str, typer.Option(metavar="DIR", help="Where it is made.")]


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Write the first files of your own.", rich_markup_mode=None)
    app.add_typer(group, name="new")

    @group.command()
    def problem(
        name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the problem and of its folder.")],
        folder: Folder = ".",
    ) -> None:
        """Write a problem folder of three commented files that runs at once, to be changed into your own."""
        from coevo.tools.scaffold import new_problem

        written = new_problem(name, folder, plugins.registries().names)
        for path in written:
            emit(str(path))
        where = written[0].parent
        emit(f"try it: coevo check {where}; run it: coevo run --task {where} --param es --context eoh")

    @group.command()
    def plugin(
        name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the context updater and of its file.")],
        folder: Folder = ".",
    ) -> None:
        """Write a plugin file with a small context updater that works, to be changed into your own."""
        from coevo.tools.scaffold import new_plugin

        (path,) = new_plugin(name, folder, plugins.registries().names)
        emit(str(path))
        emit(f"run it: coevo run --plugin {path} --context {path.stem.replace('_', '-')} --param none")
