"""From arguments to an exit code: 0 done, 1 the run or check failed, 2 the user's mistake, 130 interrupted."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, TextIO

import typer

from coevo.cli import (
    bench,
    catalogue,
    doctor,
    models,
    new,
    plan,
    reading,
    running,
    serving,
    study,
    tune,
)
from coevo.cli.errors import ClickError, one_line, usage_message
from coevo.cli.streams import secure, silence
from coevo.errors import CoevoError, PluginError, UserError
from coevo.host import consent, discovery
from coevo.host.discovery import Plugins
from coevo.host.faults import told
from coevo.machine.interrupts import INTERRUPTED, leave_at_once, leave_soon
from coevo.machine.streams import reserved
from coevo.text import print_safely, printing_safely

COMMANDS = (
    running, plan, tune, study, reading, models, serving, catalogue, new, doctor, bench,
)  # fmt: skip
"""Modules of commands, in the order of `coevo --help`."""

READING = ("show", "report", "replay", "export", "compare")
"""Commands that read runs, which may be a stranger's: for plain data no plugin of the working folder is loaded."""

TRACEBACK = "COEVO_TRACEBACK"
"""Environment variable: if it is set, errors that are one line are shown with where they came from as well."""

BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended


def build_app(plugins: Plugins) -> typer.Typer:
    """The application: the built-in commands, then those of plugins.

    Raises:
        PluginError: a plugin's command has the name of another.
    """
    app = typer.Typer(
        name="coevo",
        help="Let an LLM agent improve in its weights and in its context at once.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for module in COMMANDS:
        module.add_commands(app, plugins)
    discovery.notify(plugins.manager, "register_commands", _complain, app=app)
    _check_names(app)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code. Only a fault of coevo or a plugin leaves a traceback.

    Args:
        arguments: without the program's name; None takes those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        secure()
    _forgive(sys.stdout, "replace")
    _forgive(sys.stderr, "backslashreplace")
    if arguments is not None:
        with printing_safely():
            return _written(_code_of(given, alone=False))
    print_safely()  # to the end of the process: a traceback is shown after this
    return _written(_code_of(given, alone=True))


def _code_of(given: list[str], alone: bool) -> int:
    try:
        return _invoke(given)
    except CoevoError as error:
        if os.environ.get(TRACEBACK):
            traceback.print_exception(error)
        _end(error.exit_code, alone)
        _say(str(error))
        return error.exit_code
    except ClickError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(str(error))  # a group without its command: its help, as for `coevo` alone
            return 0
        _say(usage_message(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        _end(INTERRUPTED, alone)
        _say("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)
        return BROKEN_PIPE


def _written(code: int) -> int:
    """The exit code once all output is where it belongs; what cannot be written fails a command that was done."""
    try:
        sys.stdout.flush()
    except CoevoError as error:
        silence(sys.stdout)
        if code == 0:
            _say(str(error))
            return error.exit_code
    except BrokenPipeError:
        silence(sys.stdout)
        return BROKEN_PIPE
    return code


def _end(code: int, alone: bool) -> None:
    """An interrupted process ends, though a thread that never does would keep it; a second signal ends it at once."""
    if code == INTERRUPTED and alone:
        leave_soon()
        leave_at_once()


def _invoke(arguments: list[str]) -> int:
    for argument in arguments:
        if any("\ud800" <= letter <= "\udfff" for letter in argument):
            raise UserError(f"argument {argument!r} is not UTF-8")
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the working folder cannot be used: {error.strerror}; change to another") from None
    trust, arguments = _without_trust(arguments)
    with consent.trusting(trust):
        return _run(arguments or ["--help"])


def _without_trust(arguments: list[str]) -> tuple[bool, list[str]]:
    """Whether `--trust` is among the options, wherever it stands, and the others."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument != consent.FLAG]
    return len(kept) < end, [*kept, *arguments[end:]]


def _run(arguments: list[str]) -> int:
    name = next((argument for argument in arguments if not argument.startswith("-")), "")
    plugins = discovery.load(local="never" if name in READING else "known")
    app = build_app(plugins)
    command = typer.main.get_command(app)
    if plugins.withheld and name and name not in map(_name, [*app.registered_commands, *app.registered_groups]):
        _say(f"note: {discovery.LOCAL_PLUGIN} may have this command: {discovery.WITHHELD}; load it with {consent.FLAG}")
    # What a plugin's own command prints goes the plugin's way, and help the parser's.
    alone = "--help" not in arguments and _is_own(app, arguments[0])
    try:
        with reserved() if alone else nullcontext():
            code = command.main(args=arguments, prog_name="coevo", standalone_mode=False)
    except SystemExit as leaving:
        # The parser leaves by itself only where the reader of our output is gone.
        silence(sys.stdout)
        return BROKEN_PIPE if leaving.code == 1 else int(leaving.code or 0)
    if code == INTERRUPTED:
        _say("interrupted")
    return code if isinstance(code, int) else 0


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"coevo {version('coevo')}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
    ),
    trust: bool = typer.Option(
        False, consent.FLAG,
        help="Run the code that is found in this folder, or that a stranger's run names, without asking. It may stand "
        "anywhere.",
    ),
) -> None:  # fmt: skip
    """Nothing by itself."""


def _is_own(app: typer.Typer, name: str) -> bool:
    """Whether a command, or a group of commands, is one of coevo's."""
    for info in app.registered_groups:
        if info.name == name and info.typer_instance is not None:
            app = info.typer_instance
            return all(_module(command).startswith("coevo.cli.") for command in app.registered_commands)
    return any(_name(info) == name and _module(info).startswith("coevo.cli.") for info in app.registered_commands)


def _name(info: Any) -> str:
    function = getattr(info, "callback", None)
    return info.name or (function.__name__.replace("_", "-") if callable(function) else "")


def _module(info: Any) -> str:
    return str(getattr(getattr(info, "callback", None), "__module__", "?"))


def _check_names(app: typer.Typer) -> None:
    seen: dict[str, str] = {}
    for info in [*app.registered_commands, *app.registered_groups]:
        name, module = _name(info), _module(info)
        if name in seen:
            raise PluginError(f"command {name!r} is registered twice: by {seen[name]!r} and by {module!r}")
        seen[name] = module


def _complain(plugin: str, error: BaseException) -> None:
    _say(f"note: plugin {plugin!r} could not add its commands: {told(error)}")


def _say(message: str) -> None:
    print(f"coevo: {one_line(message)}", file=sys.stderr)


def _forgive(stream: TextIO, errors: str) -> None:
    """Let no character that a terminal cannot show end a run."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        stream.reconfigure(errors=errors)
