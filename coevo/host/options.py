"""An option of a factory, declared once: by the typed signature and the `Args:` of the docstring.

Whatever a user reads of an option (`coevo options`, the message of a wrong value, docs/options.md) is made from here.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Protocol

HELP_WIDTH = 140
"""Characters of an option's help that the message of a wrong value repeats."""
LOWER, UPPER = {"ge": "≤", "gt": "<"}, {"le": "≤", "lt": "<"}
MIRRORED = {"≤": "≥", "<": ">"}


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a factory.

    Attributes:
        help: what it does, in words.
    """

    name: str
    annotation: Any
    default: Any
    help: str = ""


class OptionTables(Protocol):
    """Optional, of a factory: some of its options are tables of somebody else's options."""

    option_tables: Mapping[str, Callable[[], list[Option]]]
    """Option → what lists the options that its table may hold."""


class NestedOptions(Protocol):
    """Optional, of a factory: what its options that are tables may hold depends on other options."""

    def nested_options(self, *given: str) -> Sequence[Option]:
        """Named `option.key`; it checks nothing."""
        ...


def declared(factory: Callable[..., Any], leave: frozenset[str] = frozenset()) -> list[Option]:
    """The options that a factory declares.

    Args:
        factory: a class or a function.
        leave: parameters that are no options.
    """
    hints, told = _hints(factory), argument_help(factory)
    return [
        Option(key, hints.get(key, p.annotation), p.default, told.get(key, ""))
        for key, p in inspect.signature(factory).parameters.items()
        if key not in leave and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL) and key != "self"
    ]


def argument_help(factory: object) -> dict[str, str]:
    """The `Args:` of a Google docstring, of a class or of its `__init__`."""
    texts = [inspect.getdoc(factory), inspect.getdoc(getattr(factory, "__init__", None))]
    told: dict[str, str] = {}
    for text in texts:
        section = re.search(r"^Args:\n((?:[ \t].*\n?|\n)*)", text or "", re.MULTILINE)
        if section:
            for match in re.finditer(r"^ {4}(\w+)[^:\n]*: (.*(?:\n {5,}.*)*)", section[1], re.MULTILINE):
                told[match[1]] = " ".join(match[2].split())
    return told


def reminder(name: str, told: str) -> str:
    """What the message of a wrong value ends with: ` (rows: how many requests …)`; empty where there is no help."""
    return f" ({name}: {shorten(told, HELP_WIDTH, placeholder=' …').removesuffix('.')})" if told else ""


def type_text(annotation: Any) -> str:
    """A type as a reader needs it: `float`, `'cosine' | 'linear'`; empty for none."""
    if annotation is inspect.Parameter.empty:
        return ""
    annotation = bare(annotation)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return " | ".join(repr(value) for value in arguments)
    if origin in (typing.Union, types.UnionType):
        # None is the default of such an option and cannot be typed in TOML.
        return " | ".join(type_text(part) for part in arguments if part is not type(None))
    return inspect.formatannotation(annotation).replace("typing.", "")


def bounds_text(annotation: Any) -> str:
    """What a value is held to besides its type: `≥ 1`, `0 < x ≤ 1`, `not empty`; empty for nothing."""
    limits = {key: value for mark in _marks(annotation) for key, value in _limits(mark)}
    low = next(((value, sign) for key, sign in LOWER.items() if (value := limits.get(key)) is not None), None)
    high = next(((value, sign) for key, sign in UPPER.items() if (value := limits.get(key)) is not None), None)
    if low and high:
        return f"{_number(low[0])} {low[1]} x {high[1]} {_number(high[0])}"
    if low:
        return f"{MIRRORED[low[1]]} {_number(low[0])}"
    if high:
        return f"{high[1]} {_number(high[0])}"
    return "not empty" if limits.get("min_length") == 1 else ""


def default_text(value: Any) -> str:
    """A default as TOML writes it, since that is where a reader will type it; `-` for None."""
    return str(value).lower() if isinstance(value, bool) else "-" if value is None else repr(value)


def bare(annotation: Any) -> Any:
    """A type without its `Annotated`."""
    return typing.get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation


def _number(value: Any) -> str:
    # 2**63 and its like are written so.
    if isinstance(value, int) and value > 10**9 and value & (value - 1) == 0:
        return f"2**{value.bit_length() - 1}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _marks(annotation: Any) -> Iterator[Any]:
    """What `Annotated` says of a type, or of a part of a union."""
    yield from getattr(annotation, "__metadata__", ())
    inner = bare(annotation)
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        for part in typing.get_args(inner):
            yield from _marks(part)


def _limits(mark: Any) -> Iterator[tuple[str, Any]]:
    """The limits of a `Field`, or of a mark of annotated_types by itself."""
    for one in (mark, *getattr(mark, "metadata", ())):
        for key in (*LOWER, *UPPER, "min_length"):
            if (value := getattr(one, key, None)) is not None:
                yield key, value


def _hints(factory: Callable[..., Any]) -> dict[str, Any]:
    target = factory.__init__ if inspect.isclass(factory) else factory
    try:
        return typing.get_type_hints(target, include_extras=True)
    except NameError:
        # A name that only a type checker imports (TYPE_CHECKING): options so annotated go unchecked.
        return {name: _one_hint(target, hint) for name, hint in inspect.get_annotations(target).items()}


def _one_hint(target: Callable[..., Any], hint: Any) -> Any:
    try:
        return eval(hint, target.__globals__) if isinstance(hint, str) else hint
    except NameError:
        return inspect.Parameter.empty
