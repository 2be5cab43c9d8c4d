"""The command `compare`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.reading import AsJson, Runs
from coevo.errors import CheckFailedError
from coevo.host.discovery import Plugins


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the command."""

    @app.command()
    def compare(
        run: Annotated[list[str], typer.Argument(metavar="RUN...", help="Names of runs, or paths of their folders.")],
        out: Annotated[
            Path | None,
            typer.Option(metavar="DIR", help="Write table.md, curves as SVG and PNG, compare.json and a page there."),
        ] = None,
        runs: Runs = "runs",
        as_json: AsJson = False,
    ) -> None:
        """Compare runs: best, gap, held-out splits, valid answers and costs; runs that differ by seed are one row."""
        from coevo.tools.study import tables
        from coevo.tools.study.compare import compare_runs

        result = compare_runs(run, runs, out)
        if as_json:
            emit_json(result)
        else:
            emit(tables.text(result) + ("" if out is None else f"\n\nwrote {out / 'compare.html'}"))
        if damaged := tables.damaged(result):
            names = ", ".join(str(run["path"]) for run in damaged)
            told = "1 run is" if len(damaged) == 1 else f"{len(damaged)} runs are"
            raise CheckFailedError(f"{told} damaged ({names}); what is shown ends where the damage begins")
