"""Write the pages that are made from something else; `--check` only says whether they are up to date.

`cli.md` is made from the parser's objects and not from the text of `--help`, which changes with the version of typer
and the width of the terminal; `options.md` from what the factories of the plugins declare; `index.md` from README.md.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pluggy
import typer

from coevo.cli import build_app
from coevo.cli.catalogue import kinds, option_records, option_tables, own_record
from coevo.host import hookspecs
from coevo.host.discovery import Plugins

DOCS = Path(__file__).parent
ROOT = DOCS.parent
ROOTS = ("plugins", "tasks")
"""Folders of the plugins that come with coevo: their commands are its own, those of other plugins are not."""
MADE = "<!-- made by docs/generate_cli.py; a test compares -->"
HEAD = f"""# Command line

{MADE}

Exit codes: 0 done, 1 the run or the check failed, 2 a mistake in what was asked for, 130 interrupted. Errors are
one line on standard error. `RUN` is the name of a run or the path of its folder. Plugins that do not come with coevo
may add more commands.
"""
OPTIONS_HEAD = f"""# Options

{MADE}

Here is what `coevo options KIND NAME` shows, for everything that comes with coevo. An option is set by
`--set NAME.OPTION=VALUE`, or in the table `[NAME]` of a configuration. The run's own settings are set by
`--set SETTING=VALUE`, or at the top of a configuration. Where an option is not set, its text says what is taken
instead. Each text is written once, where the code declares the option, and coevo answers a wrong value with it.
"""
KINDS = {
    "param": "Parameter updaters",
    "context": "Context updaters",
    "task": "Tasks",
    "engine": "Engines",
    "logger": "Loggers",
}
"""What `coevo options` calls them, in the order of the page."""


def first_party() -> Plugins:
    """The plugins that come with coevo, and no other that is installed."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for package in sorted(file.parent.name for root in ROOTS for file in ROOT.glob(f"{root}/coevo_*/__init__.py")):
        manager.register(importlib.import_module(package))
    return Plugins(manager)


def cli_page() -> str:
    """Every command."""
    root: Any = typer.main.get_command(build_app(first_party()))
    sections = [_section(path, command) for path, command in commands(root, "coevo")]
    return "\n".join([HEAD, *sections])


def index_page() -> str:
    """The README with links as the pages need them."""
    text = (ROOT / "README.md").read_text("utf-8").replace("](docs/", "](")
    # What lies beside the folder of the pages is no page.
    text = re.sub(r"\[([\w.]+)\]\((?=[A-Z])[\w.]+\)", r"`\1`", text)
    head, _, rest = text.partition("\n")
    return f"{head}\n\n{MADE}\n{rest}"


def options_page() -> str:
    """Every option of what comes with coevo."""
    by_kind = kinds(first_party().registries())
    sections = [_options("run", own_record(), "")]
    for kind, title in KINDS.items():
        sections.append(f"## {title}\n")
        listed: dict[str, dict[str, Any]] = {}
        for name in by_kind[kind].names:
            found = option_records(by_kind[kind], name)
            tables = "".join(
                f"\n`{name}.{table}` is listed by `coevo options {kind} {name}.{table}`.\n"
                for table in option_tables(by_kind[kind], name)
            )
            like = next((other for other in listed if listed[other]["plugin"] == found["plugin"]), "")
            sections.append(_options(f"{kind} {name}", found, tables, kind, like, listed.get(like)))
            listed[name] = found
    return "\n".join([OPTIONS_HEAD, *sections])


def _options(title: str, found: dict[str, Any], tables: str, kind: str = "", like: str = "", other: Any = None) -> str:
    """A section; options that are those of `other`, of the same plugin, are only named."""
    same = [o["name"] for o in found["options"] if other is not None and o in other["options"]]
    lines = [f"- {_told(option)}" for option in found["options"] if option["name"] not in same]
    if same:
        lines.insert(0, f"- {', '.join(f'`{name}`' for name in same)}: as of [{like}](#{kind}-{like})")
    level = "##" if title == "run" else "###"
    return (
        "\n".join([f"{level} {title}", "", _sentence(found["summary"]), "", *(lines or ["It has no options."]), ""])
        + tables
    )


def _told(option: dict[str, Any]) -> str:
    kind = f"`{option['type']}`" if option["type"] else ""
    default = "not set" if option["default"] is None else f"default `{option['shown']}`"
    facts = [kind, option["bounds"], "required" if option["required"] else default]
    return f"`{option['name']}` ({', '.join(fact for fact in facts if fact)}): {option['help']}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by its whole name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, below in inner.items():
        yield from commands(below, f"{path} {name}")


def _section(path: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join([path, *(_metavar(p) for p in arguments), *(["[OPTIONS]"] if options else [])])
    lines = [f"## {path}", "", command.help.strip(), "", f"    {usage}", ""]
    for parameter in [*arguments, *options]:
        name = _metavar(parameter) if parameter in arguments else _option(parameter)
        lines.append(f"- `{name}`: {(parameter.help or '').strip()}{_default(parameter)}")
    return "\n".join([*lines, ""])


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _option(option: Any) -> str:
    flag = ", ".join(option.opts)
    return flag if option.is_flag else f"{flag} {_metavar(option)}"


def _default(parameter: Any) -> str:
    if parameter.required and parameter.param_type_name == "option":
        return " Required."
    default = parameter.default
    shown = isinstance(default, str | int) and not isinstance(default, bool) and default != ""
    return f" Default: `{default}`." if shown else ""


PAGES = {"cli.md": cli_page, "index.md": index_page, "options.md": options_page}

if __name__ == "__main__":
    for name, made in PAGES.items():
        page = DOCS / name
        if "--check" not in sys.argv:
            page.write_text(made(), encoding="utf-8")
        elif not page.exists() or page.read_text("utf-8") != made():
            sys.exit(f"docs/{name} is out of date")
