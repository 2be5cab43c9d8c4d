"""`coevo plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.reading import AsJson
from coevo.cli.running import configuration, loaded
from coevo.host.discovery import Plugins
from coevo.records import Json

DOES_NOT_FIT = 1


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the command."""

    @app.command()
    def plan(
        config: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="A TOML file.")] = None,
        param: Annotated[str | None, typer.Option(metavar="NAME", help="Optimizer of the weights, or none.")] = None,
        context: Annotated[str | None, typer.Option(metavar="NAME", help="Optimizer of the context, or none.")] = None,
        engine: Annotated[str | None, typer.Option(metavar="NAME", help="What serves the model.")] = None,
        model: Annotated[str | None, typer.Option(metavar="ID|DIR|ALIAS", help="The model to start from.")] = None,
        gpus: Annotated[int | None, typer.Option(metavar="N", help="GPUs of the node; 0 is the CPU.")] = None,
        gpu_memory: Annotated[float | None, typer.Option(metavar="GB", help="Memory of each.")] = None,
        host_memory: Annotated[float | None, typer.Option(metavar="GB", help="Main memory of the node.")] = None,
        parameters: Annotated[
            str | None, typer.Option(metavar="N", help="Weights of a model that is not known, such as 4e9.")
        ] = None,
        assign: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="A.B=C", help="Any key of the configuration. Repeatable."),
        ] = None,
        plugin: Annotated[
            list[str] | None, typer.Option(metavar="FILE", help="A Python file with hooks. Repeatable.")
        ] = None,
        as_json: AsJson = False,
    ) -> None:
        """Say what a configuration needs of memory, disk, network and time. Starts nothing.

        Exit code 1 where it does not fit. Without --gpus and the memories it is held against this machine.
        """
        from coevo.tools.sizing import tables
        from coevo.tools.sizing.architecture import parse_count
        from coevo.tools.sizing.conduct import Given, check_sizes, make_plan

        weights = None if parameters is None else parse_count(parameters)
        given = Given(gpus, gpu_memory, host_memory, weights)
        check_sizes(given)
        named: dict[str, Json] = {"param": param, "context": context, "engine": engine, "model": model}
        data = configuration(config, named, assign or (), plugin or ())
        with_files = loaded(data.get("plugins"), plugins)
        found = make_plan(data, with_files, given)
        if as_json:
            emit_json(found)
        else:
            emit(tables.text(found))
        if not found["fits"]:
            raise typer.Exit(DOES_NOT_FIT)
