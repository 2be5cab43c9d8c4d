"""What there is: `tasks`, `plugins`, `options`."""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from textwrap import shorten
from typing import Annotated, Any, TypeAlias

import typer

from coevo.cli.output import emit, emit_json
from coevo.cli.running import loaded
from coevo.errors import PluginError, UserError, did_you_mean
from coevo.host import discovery
from coevo.host.config import FOLDER_TASK, problem_folder
from coevo.host.discovery import Plugins, Registries
from coevo.host.registry import Option, OptionTables, Registry
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
        kind: Annotated[str, typer.Argument(metavar="KIND", help="task, engine, param, context or logger.")],
        name: Annotated[
            str,
            typer.Argument(
                metavar="NAME|DIR",
                help="A registered name, the folder of a problem, or NAME.OPTION of a table that it passes on.",
            ),
        ],
        plugin: Files = None,
        as_json: AsJson = False,
    ) -> None:
        """List the options of a task, engine, updater or logger: what `--set NAME.OPTION=VALUE` takes."""
        by_kind = kinds(loaded(plugin, plugins).registries())
        if kind not in by_kind:
            raise UserError(f"no kind {kind!r}{did_you_mean(kind, list(by_kind))}")
        folder = problem_folder(name, by_kind[kind].names) if kind == "task" else None
        record = option_records(by_kind[kind], name) if folder is None else option_records(
            by_kind[kind], FOLDER_TASK, folder
        )  # fmt: skip
        name = str(record["name"])
        if as_json:
            emit_json({"kind": kind, **record})
            return
        rows = [
            [o["name"], shorten(o["type"], TYPE_WIDTH, placeholder=" …"),
             "required" if o["required"] else str(o["shown"]), o["help"]] for o in record["options"]
        ]  # fmt: skip
        emit(f"{kind} {name} (plugin {record['plugin']}): {record['summary']}")
        emit(table(rows, ("option", "type", "default", "")) if rows else "it has no options")
        for table_name in option_tables(by_kind[kind], name):
            emit(f"{name}.{table_name} is listed by: coevo options {kind} {name}.{table_name}")


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
    """A factory's options: name, type, default and the line of its docstring.

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
    told, summary = _argument_help(entry.factory), entry.summary
    if inner:
        tables = option_tables(registry, owner)
        if inner not in tables:
            known = [owner, *(f"{owner}.{table_name}" for table_name in tables)]
            raise UserError(f"no options to list for {name!r}{did_you_mean(name, known)}")
        listed, summary, told = tables[inner](), told.get(inner, ""), {}
    empty = inspect.Parameter.empty
    return {
        "name": name,
        "plugin": entry.plugin,
        "summary": summary,
        "options": [
            {
                "name": option.name,
                "type": "" if option.annotation is empty else type_text(option.annotation),
                "required": option.default is empty,
                "default": None if option.default is empty else _plain(option.default),
                "shown": "" if option.default is empty else _shown(option.default),
                "help": option.help or told.get(option.name, ""),
            }
            for option in listed
        ],
    }


def option_tables(registry: Registry[Any], name: str) -> Mapping[str, Callable[[], list[Option]]]:
    """Options that are tables of somebody else's options, with what lists those: `option_tables` of the factory."""
    factory: object = registry.entry(name).factory if name in registry else None
    return factory.option_tables if offers(factory, OptionTables) else {}


def type_text(annotation: Any) -> str:
    """A type as a reader needs it: `float`, `'cosine' | 'linear'`."""
    if hasattr(annotation, "__metadata__"):
        return type_text(typing.get_args(annotation)[0])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " | ".join(repr(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        # None is the default of such an option and cannot be typed in TOML.
        return " | ".join(type_text(part) for part in arguments if part is not type(None))
    return inspect.formatannotation(annotation).replace("typing.", "")


def _plain(value: Any) -> Json:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value


def _shown(value: Any) -> str:
    # As TOML writes it, since that is where a reader will type it.
    return str(value).lower() if isinstance(value, bool) else "-" if value is None else repr(value)


def _argument_help(factory: object) -> dict[str, str]:
    """The `Args:` of a Google docstring, of a class or of its `__init__`."""
    texts = [inspect.getdoc(factory), inspect.getdoc(getattr(factory, "__init__", None))]
    told: dict[str, str] = {}
    for text in texts:
        section = re.search(r"^Args:\n((?:[ \t].*\n?|\n)*)", text or "", re.MULTILINE)
        if section:
            for match in re.finditer(r"^ {4}(\w+)[^:\n]*: (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE):
                told[match[1]] = " ".join(match[2].split())
    return told
