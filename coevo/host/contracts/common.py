"""What several Protocols have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import get_args, get_type_hints

from coevo.errors import PluginError
from coevo.host.shapes import Wrong, of, texts

DATA = (Exception,)
"""What a method raises becomes data of its rollout."""


def holds(who: str, check: Callable[[], object]) -> None:
    """An attribute is what it has to be."""
    try:
        check()
    except Wrong as wrong:
        raise PluginError(f"{who} has {wrong}") from None


@cache
def choices(record: type, name: str) -> tuple[str, ...]:
    """What a field that is a Literal may be."""
    return get_args(get_type_hints(record)[name])


def described(given: object, *_: object) -> object:
    """The check of `describe`."""
    texts(given, "words about it")
    return given


def text(given: object, *_: object) -> str:
    """The check of what gives a text."""
    return of(str, given, "a text")
