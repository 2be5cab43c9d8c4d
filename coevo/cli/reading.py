"""Commands that read runs: `compare`, `show`, `replay`, `export`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from coevo.cli.output import emit, emit_json
from coevo.errors import CheckFailedError
from coevo.host.discovery import Plugins

Run: TypeAlias = Annotated[str, typer.Argument(metavar="RUN", help="Name or folder of a run.")]
Runs: TypeAlias = Annotated[str, typer.Option(metavar="DIR", help="Folder of the runs.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
At: TypeAlias = Annotated[
    str, typer.Option(metavar="G|best|last", help="Weights after generation G, those that found the best, or all.")
]


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the commands."""

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

    @app.command()
    def show(run: Run, runs: Runs = "runs", as_json: AsJson = False) -> None:
        """Show what a run is, how far it came and its best answer."""
        from coevo.report import text
        from coevo.runs.folder import RunFolder
        from coevo.runs.summary import summarize

        folder = RunFolder.find(run, runs)
        summary = summarize(folder)
        if as_json:
            emit_json(summary)
        else:
            emit(text.show(summary, folder, folder.journal.history().told))

    @app.command()
    def replay(run: Run, runs: Runs = "runs", as_json: AsJson = False, at: At = "last") -> None:
        """Rebuild the weights from base and journal, and check every digest on the way."""
        from coevo.runs.folder import RunFolder
        from coevo.runs.rebuild import silent, verified

        folder = RunFolder.find(run, runs)
        try:
            found = verified(folder, at, silent if as_json else emit)
        except CheckFailedError as error:
            if as_json:
                emit_json({"run": folder.name, "at": at, "verified": False, "error": str(error)})
            raise
        if as_json:
            emit_json(found)
        else:
            emit(f"verified: {found['batches']} batches, weights {found['weights_digest']}")

    @app.command()
    def export(
        run: Run,
        out: Annotated[Path, typer.Option(metavar="DIR", help="A folder to make.")],
        dtype: Annotated[
            str | None, typer.Option(metavar="NAME", help="float32, bfloat16 or float16; the base's own by default.")
        ] = None,
        at: At = "last",
        runs: Runs = "runs",
        as_json: AsJson = False,
    ) -> None:
        """Write the weights of a run as a model folder that transformers loads."""
        from coevo.runs.folder import RunFolder
        from coevo.runs.rebuild import export_run

        written = export_run(RunFolder.find(run, runs), out, dtype, at)
        if as_json:
            emit_json(written)
        else:
            emit(f"wrote {written['tensors']} tensors as {written['dtype']} to {written['out']}")

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
