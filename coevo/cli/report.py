"""The command `report`: a run as a page to read and to send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.reading import AsJson, Run, Runs
from coevo.host.discovery import Plugins


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the command."""

    @app.command()
    def report(
        run: Run,
        out: Annotated[
            Path | None,
            typer.Option(metavar="FILE", help="The HTML file; report.html in the run's folder by default."),
        ] = None,
        runs: Runs = "runs",
        as_json: AsJson = False,
    ) -> None:
        """Write a run as one HTML file with its curves, and the curves as SVG and PNG beside it."""
        from coevo.report.run_report import write
        from coevo.runs.folder import RunFolder

        written = write(RunFolder.find(run, runs), out)
        if as_json:
            emit_json({"report": str(written.html), "svg": str(written.svg), "png": str(written.png)})
        else:
            emit(f"wrote {written.html}\nwrote {written.svg}\nwrote {written.png}")
