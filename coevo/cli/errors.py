"""Usage errors of the parser in the same one-line form as coevo's own."""

from __future__ import annotations

import re
from typing import Any, cast

import typer

from coevo.errors import did_you_mean

# typer carries its own copy of click from 0.25 on; the classes above BadParameter are those in use either way.
UsageError = cast(type[Exception], typer.BadParameter.__mro__[1])
ClickError = cast(type[Exception], typer.BadParameter.__mro__[2])


_ENDS = 150
_LONG = re.compile(r"""'[^']{400,}'|"[^"]{400,}"|[0-9]{400,}""")


def one_line(text: str) -> str:
    """`text` without line breaks; the middle of a quoted value, or of a number, that is very long is left out."""
    return _LONG.sub(lambda long: f"{long[0][:_ENDS]} … {long[0][-_ENDS:]}", " ".join(text.split()))


def usage_message(error: Exception) -> str:
    """What the parser refused, in one line, with a did-you-mean and where to look."""
    context: Any = getattr(error, "ctx", None)
    where = f"; see: {context.command_path} --help" if context is not None else ""
    option = getattr(error, "option_name", None)
    if option is not None and type(error).__name__ == "NoSuchOption":
        hint = did_you_mean(str(option), _options(context))
        # Many options are known; naming all of them would be no line.
        return f"no such option {option!r}" + (hint if hint.startswith("; did") else where)
    text = one_line(str(cast(Any, error).format_message()))
    if context is not None and text.startswith("No such command"):
        name = text.split("'")[1] if "'" in text else ""
        return f"no such command {name!r}{did_you_mean(name, list(context.command.list_commands(context)))}"
    text = text.removesuffix(".").replace(": Input should", ": input should")
    return text[:1].lower() + text[1:] + _seen(error) + where


def _seen(error: Exception) -> str:
    """The value that the parser refused, where it says so to itself only."""
    refused: Any = error.__cause__ or error.__context__
    found: list[Any] = refused.errors() if hasattr(refused, "errors") else []
    return f", got {found[0]['input']!r}" if found else ""


def _options(context: Any) -> list[str]:
    if context is None:
        return []
    return [name for parameter in context.command.params for name in parameter.opts if name.startswith("-")]
