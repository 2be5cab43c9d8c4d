"""`coevo run` and `coevo resume`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from coevo.cli.output import emit
from coevo.host import discovery
from coevo.host.config import RunConfig
from coevo.host.discovery import Plugins
from coevo.records import Json

Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")]
Runs = Annotated[str, typer.Option(metavar="DIR", help="Folder of the runs.")]


def _option(key: str, metavar: str, text: str) -> Any:
    """An option for a key of the configuration, its default in the help."""
    default = RunConfig.model_fields[key].default
    return typer.Option(metavar=metavar, help=f"{text}." if default is None else f"{text}. Default: {default}.")


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add both commands."""

    @app.command()
    def run(
        config: Annotated[str | None, typer.Argument(metavar="[CONFIG]", help="A TOML file.")] = None,
        param: Annotated[str | None, _option("param", "NAME", "Optimizer of the weights, or none")] = None,
        context: Annotated[str | None, _option("context", "NAME", "Optimizer of the context, or none")] = None,
        task: Annotated[str | None, _option("task", "NAME|DIR", "A task, or the folder of a problem")] = None,
        engine: Annotated[str | None, _option("engine", "NAME", "What serves the model")] = None,
        model: Annotated[str | None, _option("model", "ID|DIR|ALIAS", "The model to start from")] = None,
        generations: Annotated[int | None, _option("generations", "N", "How long to evolve")] = None,
        population: Annotated[int | None, _option("population", "N", "Members of an adapting batch")] = None,
        calls: Annotated[int | None, _option("calls", "N", "Hard limit of model calls")] = None,
        tokens: Annotated[int | None, _option("tokens", "N", "Hard limit of tokens, prompts included")] = None,
        seed: Annotated[int | None, _option("seed", "N", "Root of everything random")] = None,
        name: Annotated[str | None, _option("name", "RUN", "Name or folder of the run")] = None,
        runs: Annotated[str | None, _option("runs", "DIR", "Folder of the runs")] = None,
        assign: Annotated[
            list[str] | None,
            typer.Option("--set", metavar="A.B=C", help="Any other key, such as es.sigma=1e-3. Repeatable."),
        ] = None,
        plugin: Annotated[
            list[str] | None, typer.Option(metavar="FILE", help="A Python file with hooks. Repeatable.")
        ] = None,
        quiet: Quiet = False,
    ) -> None:
        """Evolve: start a new run and see it to its end."""
        from coevo.app.launch import run as start

        given: dict[str, Json] = {
            "param": param, "context": context, "task": task, "engine": engine, "model": model,
            "generations": generations, "population": population, "calls": calls, "tokens": tokens,
            "seed": seed, "name": name, "runs": runs,
        }  # fmt: skip
        data = configuration(config, given, assign or (), plugin or (), quiet)
        with_files = loaded(data.get("plugins"), plugins)
        _note_broken(with_files)
        _finish(start(data, with_files))

    @app.command()
    def resume(
        run: Annotated[str, typer.Argument(metavar="RUN", help="Name or folder of a run.")],
        runs: Runs = "runs",
        accept_changes: Annotated[
            bool, typer.Option("--accept-changes", help="Go on although something that results depend on has changed.")
        ] = False,
        quiet: Quiet = False,
    ) -> None:
        """Go on with a run that was interrupted or killed."""
        from coevo.app.launch import resume as go_on
        from coevo.app.permission import allowed
        from coevo.host.config import plugin_files
        from coevo.runs.folder import RunFolder

        folder = RunFolder.find(run, runs)
        allowed(folder)
        with_files = loaded(plugin_files(folder.config()), plugins)
        _note_broken(with_files)
        _finish(go_on(run, runs, with_files, quiet=quiet, accept_changes=accept_changes))


def loaded(files: Sequence[str] | None, plugins: Plugins) -> Plugins:
    """The plugins with files that the user named, and with that of the working folder, which may have to be asked for.

    Raises:
        UserError: the user does not want it.
        PluginError: a file is missing or broken.
    """
    return discovery.load(files or ()) if files or plugins.withheld else plugins


def configuration(
    file: str | None,
    given: Mapping[str, Json],
    assignments: Sequence[str],
    plugin_paths: Sequence[str],
    quiet: bool = False,
) -> dict[str, Json]:
    """The configuration's data: a file, over it the options given, over them `--set`.

    Raises:
        UserError: a missing or broken file, or an assignment that is none.
    """
    from coevo.host.config import merge, parse_assignment, plugin_files, read_file

    data = read_file(Path(file)) if file is not None else {}
    changes = [([key], value) for key, value in given.items() if value is not None]
    data = merge(data, [*changes, *(parse_assignment(text) for text in assignments)])
    files = [*plugin_files(data), *plugin_paths]
    if files:
        # The run may be resumed from another folder.
        data["plugins"] = [str(Path(path).absolute()) for path in files]
    if quiet:
        data["loggers"] = []
    return data


def _note_broken(plugins: Plugins) -> None:
    """What is left out, and what looks like a mistake."""
    for plugin in plugins.broken:
        note = " ".join(plugin.error.split())
        print(f"coevo: note: plugin {plugin.name!r} ({plugin.source}) is left out: {note}", file=sys.stderr)
    for plugin in plugins.found:
        for note in plugin.notes:
            print(f"coevo: note: plugin {plugin.name!r} ({plugin.source}): {note}", file=sys.stderr)


def _finish(summary: Mapping[str, Json]) -> None:
    from coevo.report.text import result
    from coevo.runs.folder import RunFolder

    emit(result(summary, RunFolder(Path(summary["path"]))))
