"""`coevo bench`: the speed claims, measured on this machine against the usual way of doing the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

import typer

from coevo.cli.output import emit, emit_json
from coevo.discovery import Plugins
from coevo.errors import UserError
from coevo.records import Json
from coevo.report.numbers import number, table

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Rounds: TypeAlias = Annotated[int | None, typer.Option(metavar="N", help="Interleaved rounds.")]


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Measure speed on this machine.", rich_markup_mode=None)
    app.add_typer(group, name="bench")

    @group.command()
    def noise(
        rounds: Rounds = None,
        elements: Annotated[int | None, typer.Option(metavar="N", help="How many weights.")] = None,
        threads: Annotated[int | None, typer.Option(metavar="N", help="Threads of both sides.")] = None,
        as_json: AsJson = False,
    ) -> None:
        """Perturbed weights: coevo's kernel against torch's generator."""
        from coevo.bench.noise import bench_noise

        _measure(bench_noise, as_json, rounds=rounds, elements=elements, threads=threads)

    @group.command()
    def serve(
        model: Annotated[str | None, typer.Option(metavar="ID|DIR|ALIAS", help="The model to serve.")] = None,
        members: Annotated[
            int | None, typer.Option(metavar="N", help="Members served before the centre is compared.")
        ] = None,
        rounds: Rounds = None,
        as_json: AsJson = False,
    ) -> None:
        """One perturbed model made ready: derived against torch.randn in place; then many members and the centre."""
        from coevo.bench.serve import bench_serve

        _measure(bench_serve, as_json, model=model, rounds=rounds, members=members)

    @group.command()
    def sandbox(
        candidates: Annotated[int | None, typer.Option(metavar="N", help="Programs a round and side.")] = None,
        rounds: Rounds = None,
        as_json: AsJson = False,
    ) -> None:
        """Candidate programs: the sandbox's zygote against a fresh interpreter each."""
        from coevo.bench.sandbox import bench_sandbox

        _measure(bench_sandbox, as_json, candidates=candidates, rounds=rounds)


def _measure(bench: Callable[..., Mapping[str, Json]], as_json: bool, **options: Json) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if isinstance(value, int) and value < 1:
            raise UserError(f"--{name} got {value}: it should be 1 or more")
    try:
        found = bench(**given)
    except (ValueError, RuntimeError, MemoryError) as error:
        # Out of what this machine has: more threads than cores, more elements than memory.
        raise UserError(f"the bench cannot run with {given}: {' '.join(str(error).split())[:200]}") from None
    if as_json:
        emit_json(dict(found))
    else:
        rows = [[name, number(value, 4) if isinstance(value, int | float) else str(value)]
                for name, value in found.items()]  # fmt: skip
        emit(table(rows))
