"""`coevo study`."""

from __future__ import annotations

from typing import Annotated

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.reading import AsJson, Runs
from coevo.cli.running import Quiet, loaded
from coevo.errors import RunError
from coevo.host.discovery import Plugins


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the command."""

    @app.command()
    def study(
        file: Annotated[str, typer.Argument(metavar="FILE", help="A TOML file with seeds, base and arms.")],
        runs: Runs = "runs",
        as_json: AsJson = False,
        quiet: Quiet = False,
    ) -> None:
        """Run arms x seeds one after the other and compare them; started again, it goes on where it was."""
        from coevo.tools.study import tables
        from coevo.tools.study.conduct import run_study

        # A run's progress is on standard output, which with --json is for JSON alone.
        result = run_study(file, runs, loaded((), plugins), quiet=quiet, live=not as_json)
        if as_json:
            emit_json(result)
        else:
            emit(tables.text(result))
        if failed := tables.failed(result):
            names = ", ".join(str(run["name"]) for run in failed)
            raise RunError(f"{len(failed)} of the study's runs failed ({names}); the same command tries them again")
