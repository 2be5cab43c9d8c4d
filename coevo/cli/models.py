"""`coevo model`: the models in the cache."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from coevo.cli.output import emit, emit_json
from coevo.errors import UserError
from coevo.host.discovery import Plugins
from coevo.report.numbers import table


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Fetch and list models.", rich_markup_mode=None)
    app.add_typer(group, name="model")

    @group.command()
    def pull(
        name: Annotated[str, typer.Argument(metavar="ALIAS|ID", help="What to fetch.")],
    ) -> None:
        """Fetch a model into the cache; does nothing where it is there."""
        from coevo.models.catalogue import cache_folder
        from coevo.models.catalogue import pull as fetch

        try:
            emit(str(fetch(name, lambda text: print(text, file=sys.stderr))))
        except BrokenPipeError:
            raise
        except OSError as error:
            where = error.filename or str(cache_folder())
            raise UserError(
                f"cannot fetch into {where!r}: {error.strerror}; set COEVO_CACHE to another folder"
            ) from None

    @group.command(name="list")
    def list_models(
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """List the aliases and what is in the cache."""
        from coevo.models.catalogue import catalogue

        rows = catalogue()
        if as_json:
            emit_json(rows)
        else:
            emit(table([[str(row[key]) for key in ("name", "state", "summary", "path")] for row in rows]))
