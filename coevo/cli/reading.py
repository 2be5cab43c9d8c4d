"""Commands that read a run: `show`, `replay`, `export`."""

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
    """Add the three commands."""

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
