"""`coevo check`, a command of this plugin, since only it knows what a problem folder is."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coevo.errors import CoevoError, UserError, did_you_mean
from coevo.machine.places import expanded
from coevo_heuristics.problem import MOST_WORKERS

if TYPE_CHECKING:
    from coevo_heuristics.checking import Row, Timing

FAILED = 1
_LONGEST = 160


def add_check(app: typer.Typer, problems: Path) -> None:
    """Add the command; `problems` holds the folders that are known by name."""

    @app.command()
    def check(
        problem: Annotated[
            str, typer.Argument(metavar="DIR|NAME", help="A problem folder, or a problem that comes with coevo.")
        ],
        workers: Annotated[
            int | None,
            typer.Option(metavar="N", min=1, max=MOST_WORKERS, help="Candidates at once; one per core by default."),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """Try a problem: its parts, its seed, candidates that crash, hang or cheat, and how long one evaluation takes.

        Exit code 1 where something is not as it should be.
        """
        from coevo_heuristics.checking import Check, Row

        folder = find(problem, problems)
        states: Counter[str] = Counter()
        every: list[Row] = []
        try:
            checked = Check(folder, workers)
            for row in checked.rows():
                states[row.state] += 1
                every.append(row)
                if not as_json:
                    print(_text(row), flush=True)
        except CoevoError as error:
            # Nothing more can be looked at; whoever reads JSON is told so there as well.
            if as_json:
                _print_json([*every, Row("failure", "the problem", str(error))], None)
            raise
        holds, timing = not states["failure"], checked.timing
        if as_json:
            _print_json(every, timing)
        else:
            if timing is not None:
                print(
                    f"one evaluation takes {timing.seconds:.3g} s ({timing.cpu_seconds:.3g} s of CPU time): "
                    f"{timing.per_second:.3g} a second, {timing.per_second_parallel:.3g} with {timing.workers} at once"
                )
            print(f"{'holds' if holds else 'does not hold'}: {states['failure']} failed, {states['warning']} warnings")
        if not holds:
            raise typer.Exit(FAILED)


def _print_json(rows: Sequence[Row], timing: Timing | None) -> None:
    told = {
        "holds": all(row.state != "failure" for row in rows),
        "checks": [dataclasses.asdict(row) for row in rows],
        "timing": None if timing is None else dataclasses.asdict(timing),
    }
    print(json.dumps(told, indent=1, allow_nan=False))


def _text(row: Row) -> str:
    """A row on one line: of a candidate, how it was classified and what it should have been unless it is that."""
    expected = f", expected {row.expected}" if row.status != row.expected and row.state != "ok" else ""
    found = row.found if len(row.found) <= _LONGEST else f"{row.found[: _LONGEST - 1]}…"
    return f"{row.state:<8} {row.name}: {row.status}{expected}{': ' if row.status else ''}{found}"


def find(problem: str, problems: Path) -> Path:
    """The folder of `problem`; a name that comes with coevo wins over a folder, as for `coevo run --task`.

    Raises:
        UserError: there is neither.
    """
    known = sorted(file.parent.name for file in problems.glob("*/problem.toml"))
    if problem in known:
        return problems / problem
    folder = expanded(problem)
    if not folder.is_dir():
        raise UserError(f"no problem folder {problem!r}, and no problem of that name{did_you_mean(problem, known)}")
    return folder
