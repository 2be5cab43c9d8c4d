"""What there is: `tasks`, `plugins`, `options`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from textwrap import shorten
from typing import Annotated, Any, TypeAlias

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.running import loaded
from coevo.errors import PluginError, UserError, did_you_mean
from coevo.host import discovery
from coevo.host.config import FOLDER_TASK, own_options, problem_folder
from coevo.host.discovery import Plugins, Registries
from coevo.host.options import Option, OptionTables, bounds_text, default_text, type_text
from coevo.host.registry import Registry
from coevo.optional import offers
from coevo.records import Json
from coevo.report.numbers import table

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Files: TypeAlias = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="FILE", help="A Python file with hooks. Repeatable.")
]
TYPE_WIDTH = 60
"""Characters of a type that are shown: some libraries' options have dozens of values. `--json` has all."""


def kinds(registries: Registries) -> dict[str, Registry[Any]]:
    """The registries by what `coevo options KIND` calls them."""
    return {
        "task": registries.tasks,
        "engine": registries.engines,
        "param": registries.parameter_updaters,
        "context": registries.context_updaters,
        "logger": registries.loggers,
    }


def add_commands(app: typer.Typer, plugins: Plugins) -> None:
    """Add the three commands."""

    @app.command()
    def tasks(plugin: Files = None, as_json: AsJson = False) -> None:
        """List the tasks."""
        entries = list(loaded(plugin, plugins).registries().tasks)
        if as_json:
            emit_json([{"name": e.name, "plugin": e.plugin, "summary": e.summary} for e in entries])
        else:
            emit(table([[e.name, e.summary] for e in entries]) or "no tasks; see: coevo plugins")

    @app.command(name="plugins")
    def list_plugins(plugin: Files = None, as_json: AsJson = False) -> None:
        """List the plugins, where they come from and what they register."""
        # One that is left out is listed with the reason.
        found = discovery.load(plugin, local="known") if plugin else plugins
        conflict: PluginError | None = None
        registries = Registries()
        try:
            registries = found.registries()
        except PluginError as error:
            # What is installed is what one needs to see then.
            conflict = error
        records = plugin_records(found, registries)
        if as_json:
            emit_json(records)
        else:
            emit(table([[str(r["name"]), str(r["source"]), _registered(r)] for r in records]) or "no plugins")
        if conflict is not None:
            raise conflict

    @app.command()
    def options(
        kind: Annotated[
            str,
            typer.Argument(metavar="KIND", help="task, engine, param, context or logger; or run, which has no NAME."),
        ],
        name: Annotated[
            str,
            typer.Argument(
                metavar="[NAME|DIR]",
                help="A registered name, the folder of a problem, or NAME.OPTION of a table that it passes on.",
            ),
        ] = "",
        plugin: Files = None,
        as_json: AsJson = False,
    ) -> None:
        """List the options of a task, engine, updater or logger: what `--set NAME.OPTION=VALUE` takes."""
        if kind == "run":
            if name:
                raise UserError(
                    f"coevo options run got the name {name!r}; it takes none and lists all settings of a run"
                )
            _list({"kind": kind, "name": "", **own_record()}, as_json)
            return
        by_kind = kinds(loaded(plugin, plugins).registries())
        if kind not in by_kind:
            raise UserError(f"no kind {kind!r}{did_you_mean(kind, [*by_kind, 'run'])}")
        if not name:
            raise UserError(f"coevo options {kind} needs a name; there are: {', '.join(by_kind[kind].names)}")
        folder = problem_folder(name, by_kind[kind].names) if kind == "task" else None
        found = option_records(by_kind[kind], name) if folder is None else option_records(
            by_kind[kind], FOLDER_TASK, folder
        )  # fmt: skip
        _list({"kind": kind, **found}, as_json)
        if not as_json:
            name = str(found["name"])
            for table_name in option_tables(by_kind[kind], name):
                emit(f"{name}.{table_name} is listed by: coevo options {kind} {name}.{table_name}")


def _list(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(dict(found))
        return
    rows = [
        [o["name"], shorten(o["type"], TYPE_WIDTH, placeholder=" …"),
         "required" if o["required"] else str(o["shown"]), o["bounds"], o["help"]] for o in found["options"]
    ]  # fmt: skip
    emit(f"{found['kind']} {found['name']}".rstrip() + f" (plugin {found['plugin']}): {found['summary']}")
    emit(table(rows, ("option", "type", "default", "bounds", "")) if rows else "it has no options")


def own_record() -> dict[str, Json]:
    """The run's own settings, as `option_records` has a factory's."""
    summary = "the run's own settings, at the top of a configuration and in its tables"
    return {"plugin": "coevo", "summary": summary, "options": [record(option) for option in own_options()]}


def plugin_records(plugins: Plugins, registries: Registries) -> list[dict[str, Json]]:
    """Every plugin that was found, with the names it registers by kind and its error, if any."""
    return [
        {
            "name": plugin.name,
            "source": plugin.source,
            "error": plugin.error,
            "notes": list(plugin.notes),
            "registers": {
                kind: names
                for kind, registry in kinds(registries).items()
                if (names := [entry.name for entry in registry if entry.plugin == plugin.name])
            },
        }
        for plugin in plugins.found
    ]


def _registered(record: dict[str, Json]) -> str:
    if record["error"]:
        return f"broken: {' '.join(str(record['error']).split())}"
    return "; ".join([*(f"{kind} {', '.join(names)}" for kind, names in record["registers"].items()), *record["notes"]])


def option_records(registry: Registry[Any], name: str, *given: str) -> dict[str, Json]:
    """A factory's options: name, type, bounds, default and the line of its docstring.

    Args:
        registry: of its kind.
        name: its own, or with a point and the name of a table of options that it passes on to somebody else.
        given: for its nested options: the folder of a task that is one.

    Raises:
        UserError: no such name.
    """
    owner, _, inner = name.partition(".")
    entry = registry.entry(owner if owner in registry else name)
    listed = [*registry.options(entry.name), *registry.nested(entry.name, *given)]
    summary = entry.summary
    if inner:
        tables = option_tables(registry, owner)
        if inner not in tables:
            known = [owner, *(f"{owner}.{table_name}" for table_name in tables)]
            raise UserError(f"no options to list for {name!r}{did_you_mean(name, known)}")
        summary = next((option.help for option in listed if option.name == inner), "")
        listed = tables[inner]()
    return {"name": name, "plugin": entry.plugin, "summary": summary, "options": [record(option) for option in listed]}


def record(option: Option) -> dict[str, Json]:
    """An option for readers and programs."""
    required = option.default is inspect.Parameter.empty
    return {
        "name": option.name,
        "type": type_text(option.annotation),
        "bounds": bounds_text(option.annotation),
        "required": required,
        "default": None if required else _plain(option.default),
        "shown": "" if required else default_text(option.default),
        "help": option.help,
    }


def option_tables(registry: Registry[Any], name: str) -> Mapping[str, Callable[[], list[Option]]]:
    """Options that are tables of somebody else's options, with what lists those: `option_tables` of the factory."""
    factory: object = registry.entry(name).factory if name in registry else None
    return factory.option_tables if offers(factory, OptionTables) else {}


def _plain(value: Any) -> Json:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value
