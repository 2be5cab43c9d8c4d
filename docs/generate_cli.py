"""Write docs/cli.md from the commands themselves; `--check` only says whether it is up to date.

The page is made from the parser's objects and not from the text of `--help`, which changes with the
version of typer and the width of the terminal.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pluggy
import typer

from coevo.cli import build_app
from coevo.host import hookspecs
from coevo.host.discovery import Plugins

PAGE = Path(__file__).with_name("cli.md")
ROOTS = ("plugins", "tasks")
"""Folders of the plugins that come with coevo: their commands are its own, those of other plugins are not."""
HEAD = """# Command line

<!-- made by docs/generate_cli.py; a test compares -->

Exit codes: 0 done, 1 the run or the check failed, 2 a mistake in what was asked for, 130 interrupted. Errors are
one line on standard error. `RUN` is the name of a run or the path of its folder. Plugins that do not come with coevo
may add more commands.
"""


def page() -> str:
    """The whole page."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for package in sorted(
        file.parent.name for root in ROOTS for file in PAGE.parents[1].glob(f"{root}/coevo_*/__init__.py")
    ):
        manager.register(importlib.import_module(package))
    root: Any = typer.main.get_command(build_app(Plugins(manager)))
    sections = [_section(path, command) for path, command in commands(root, "coevo")]
    return "\n".join([HEAD, *sections])


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
    return f" Default: `{default}`." if isinstance(default, str | int) and not isinstance(default, bool) else ""


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.exists() and PAGE.read_text("utf-8") == page() else "docs/cli.md is out of date")
    PAGE.write_text(page(), encoding="utf-8")
