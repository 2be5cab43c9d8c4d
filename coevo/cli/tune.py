"""`coevo tune`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.reading import AsJson, Runs
from coevo.cli.running import configuration, loaded
from coevo.errors import UserError
from coevo.host.discovery import Plugins
from coevo.records import Json

if TYPE_CHECKING:
    from coevo.runs.folder import RunFolder

# Those of `coevo.tools.tune.conduct`, which needs numpy; a test compares.
MEMBERS, ANSWERS = 12, 16


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the command."""

    @app.command()
    def tune(
        what: Annotated[
            str | None, typer.Argument(metavar="[CONFIG|RUN]", help="A TOML file, or a run, whose last weights count.")
        ] = None,
        task: Annotated[str | None, typer.Option(metavar="NAME|DIR", help="Another task.")] = None,
        engine: Annotated[str | None, typer.Option(metavar="NAME", help="What serves the model.")] = None,
        model: Annotated[str | None, typer.Option(metavar="ID|DIR|ALIAS", help="Another model.")] = None,
        population: Annotated[
            int | None, typer.Option(metavar="N", help="Population that the proposal is for.")
        ] = None,
        seed: Annotated[int | None, typer.Option(metavar="N", help="Root of everything random.")] = None,
        sigmas: Annotated[
            str | None,
            typer.Option(
                metavar="S,S,...",
                help="Sigmas to measure; by default from 1/4 of the configuration's, if that is not rounded away.",
            ),
        ] = None,
        members: Annotated[int, typer.Option(metavar="N", help="Members at each sigma.")] = MEMBERS,
        answers: Annotated[int, typer.Option(metavar="N", help="Answers of each member.")] = ANSWERS,
        assign: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="A.B=C", help="Any other key, such as sampling.top_p=1. Repeatable."),
        ] = None,
        plugin: Annotated[
            list[str] | None, typer.Option(metavar="FILE", help="A Python file with hooks. Repeatable.")
        ] = None,
        runs: Runs = "runs",
        as_json: AsJson = False,
    ) -> None:
        """Measure which sigma ES can learn with, and propose sigma, alpha, population and answers.

        Asks the centre and a few members of each sigma the same questions. Nothing is updated or written.
        """
        from coevo.app.permission import allowed
        from coevo.tools.tune import conduct, tables

        wanted = None if sigmas is None else parse_sigmas(sigmas)
        folder = _run(what, runs)
        if folder is not None:
            allowed(folder, "tune")
        if folder is not None and model is not None:
            raise UserError(f"--model got {model!r}: the weights of run {folder.name!r} are those of its own model")
        given: dict[str, Json] = {
            "task": task, "engine": engine, "model": model, "population": population, "seed": seed,
        }  # fmt: skip
        file = what if folder is None else str(folder.path / "config.toml")
        data = configuration(file, given, assign or (), plugin or ())
        with_files = loaded(data.get("plugins"), plugins)
        found = conduct.tune(
            data, with_files, sigmas=wanted, members=members, answers=answers, run=folder, tell=_tell
        )  # fmt: skip
        if as_json:
            emit_json(found)
        else:
            emit(tables.text(found))


def _run(what: str | None, runs: str) -> RunFolder | None:
    """The run that is meant, None where it is a configuration."""
    if what is None or os.path.isfile(what) or what.endswith(".toml"):
        return None
    from coevo.runs.folder import RunFolder

    return RunFolder.find(what, runs)


def parse_sigmas(text: str) -> list[float]:
    """`1e-3,2e-3` as numbers.

    Raises:
        UserError: a part that is none.
    """
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        return []
    try:
        return [float(part) for part in parts]
    except ValueError:
        raise UserError(f"--sigmas got {text!r}: expected numbers with commas between, such as 1e-3,2e-3") from None


def _tell(text: str) -> None:
    print(f"coevo: tune: {text}", file=sys.stderr, flush=True)
