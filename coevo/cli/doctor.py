"""`coevo doctor`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Annotated

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.reading import AsJson
from coevo.cli.running import configuration, loaded
from coevo.errors import UserError
from coevo.host.discovery import Plugins

FAILED = 1


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the command."""

    @app.command()
    def doctor(
        engine: Annotated[str | None, typer.Option(metavar="NAME", help="The engine to try.")] = None,
        model: Annotated[str | None, typer.Option(metavar="ID|DIR|ALIAS", help="The model to try it with.")] = None,
        assign: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="A.B=C", help="Any other key, such as transformers.device=cpu. Repeatable."),
        ] = None,
        plugin: Annotated[
            list[str] | None, typer.Option(metavar="FILE", help="A Python file with hooks. Repeatable.")
        ] = None,
        timeout: Annotated[float, typer.Option(metavar="SECONDS", help="How long one check may take.")] = 300.0,
        as_json: AsJson = False,
    ) -> None:
        """Check this installation: packages, plugins, models, sandbox, then one token of an engine and its canary.

        Exit code 1 where a run with that engine and model would not work.
        """
        from coevo.tools.doctor.conduct import Doctor

        if not 0 < timeout <= 86_400:
            raise UserError(f"--timeout got {timeout}: expected seconds, such as 300")
        data = configuration(None, {"engine": engine, "model": model}, assign or (), plugin or ())
        with_files = loaded(data.get("plugins"), plugins)
        states: Counter[str] = Counter()
        every: list[dict[str, object]] = []
        for check in Doctor(with_files, data, timeout).checks():
            states[check.state] += 1
            every.append(dataclasses.asdict(check))
            if not as_json:
                mend = f"; mend: {check.mend}" if check.mend else ""
                emit(f"{check.state:<8} {check.name}: {check.found}{mend}")
        works = not states["failure"]
        if as_json:
            emit_json({"works": works, "checks": every})
        else:
            emit(f"{'works' if works else 'does not work'}: {states['failure']} failed, {states['warning']} warnings")
        if not works:
            raise typer.Exit(FAILED)
