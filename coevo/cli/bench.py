"""`coevo bench`: the speed claims, measured on this machine against the usual way of doing the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

import typer

from coevo.cli.output import emit, emit_json
from coevo.errors import UserError
from coevo.host.config import merge, parse_assignment
from coevo.host.discovery import Plugins
from coevo.records import Json
from coevo.report.numbers import number, table

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
EngineName: TypeAlias = Annotated[str | None, typer.Option("--engine", metavar="NAME", help="The engine.")]
ModelName: TypeAlias = Annotated[str | None, typer.Option("--model", metavar="ID|DIR|ALIAS", help="The model to ask.")]
Options: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME.OPTION=VALUE", help="An option of the engine.")
]
MOST, MOST_ELEMENTS = 1_000_000, 10**12
"""Of everything that a bench counts; of the weights. More would be measured until somebody ends it."""
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
        from coevo.tools.bench.noise import bench_noise

        _measure(bench_noise, as_json, rounds=rounds, elements=elements, threads=threads)

    @group.command()
    def serve(
        engine: EngineName = None,
        model: ModelName = None,
        members: Annotated[
            int | None, typer.Option(metavar="N", help="Members served before the centre is compared.")
        ] = None,
        rounds: Rounds = None,
        options: Options = None,
        as_json: AsJson = False,
    ) -> None:
        """One perturbed model made ready: derived against torch.randn in place; then many members and the centre."""
        from coevo.tools.bench.serve import bench_serve

        _measure(
            bench_serve, as_json, engine=engine, model=model, rounds=rounds, members=members,
            options=_options(engine or "transformers", options),
        )  # fmt: skip

    @group.command()
    def rollout(
        engine: EngineName = None,
        model: ModelName = None,
        episodes: Annotated[int | None, typer.Option(metavar="N", help="Episodes of one answer a round.")] = None,
        tokens: Annotated[int | None, typer.Option(metavar="N", help="Tokens of an answer at most.")] = None,
        rounds: Rounds = None,
        options: Options = None,
        as_json: AsJson = False,
    ) -> None:
        """Tokens a second from plan to saved rollouts, against the engine's library alone; by default transformers."""
        from coevo.tools.bench.rollout import bench_rollout

        _measure(
            bench_rollout, as_json, engine=engine, model=model, rounds=rounds, episodes=episodes, tokens=tokens,
            options=_options(engine or "transformers", options),
        )  # fmt: skip

    @group.command()
    def episodes(
        engine: EngineName = None,
        model: ModelName = None,
        episodes: Annotated[int | None, typer.Option(metavar="N", help="Episodes a round.")] = None,
        steps: Annotated[int | None, typer.Option(metavar="N", help="Answers of the longest episode.")] = None,
        tokens: Annotated[int | None, typer.Option(metavar="N", help="Tokens of the longest answer.")] = None,
        rounds: Rounds = None,
        options: Options = None,
        as_json: AsJson = False,
    ) -> None:
        """Episodes of varied lengths, each at its own pace against all in step; by default vllm, which is rolling."""
        from coevo.tools.bench.rollout import bench_episodes

        _measure(
            bench_episodes, as_json, engine=engine, model=model, rounds=rounds, episodes=episodes, steps=steps,
            tokens=tokens, options=_options(engine or "vllm", options),
        )  # fmt: skip

    @group.command()
    def sandbox(
        task: Annotated[
            str | None, typer.Option(metavar="NAME|DIR", help="A problem, whose evaluations are timed.")
        ] = None,
        candidates: Annotated[int | None, typer.Option(metavar="N", help="Programs a round and side.")] = None,
        rounds: Rounds = None,
        options: Annotated[
            list[str] | None, typer.Option("--set", metavar="NAME.OPTION=VALUE", help="An option of the task.")
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Candidate programs: the sandbox's zygote against a fresh interpreter each.

        With --task evaluations a second of that problem, one and 16 at a time, against its plain evaluator.
        """
        if task is None:
            from coevo.tools.bench.sandbox import bench_sandbox

            if options:
                raise UserError(f"--set got {options[0]!r}: those are options of a task; name it with --task")
            _measure(bench_sandbox, as_json, candidates=candidates, rounds=rounds)
        else:
            from coevo.tools.bench.evaluations import bench_evaluations

            tables = merge({}, [parse_assignment(option) for option in options or ()])
            _measure(
                bench_evaluations, as_json, task=task, candidates=candidates, rounds=rounds, options=tables or None
            )


def _options(engine: str, assignments: list[str] | None) -> dict[str, Json] | None:
    """The engine's options out of `engine.option=value`."""
    if not assignments:
        return None
    found: dict[str, Json] = {}
    for path, value in map(parse_assignment, assignments):
        if len(path) != 2 or path[0] != engine:
            raise UserError(f"--set got {'.'.join(path)!r}: a bench takes options of its engine, {engine}.option=value")
        found[path[1]] = value
    return found


def _measure(bench: Callable[..., Mapping[str, Json]], as_json: bool, **options: Json) -> None:
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        most = MOST_ELEMENTS if name == "elements" else MOST
        if isinstance(value, int) and not 1 <= value <= most:
            raise UserError(
                f"--{name} got {value}: it should be {f'{most:,} or less' if value > most else '1 or more'}"
            )
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
