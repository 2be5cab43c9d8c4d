"""What a value is, in words for an author: small checks that say where something else than expected was found."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar, cast

from coevo.records import Json

T = TypeVar("T")

_LONGEST = 80
_LONGEST_BITS = 14_000
"""Of an int: Python writes and reads no number of more than 4300 digits."""
_HELD = "texts, numbers, lists, and mappings with texts as keys"


class Wrong(Exception):  # noqa: N818 - half a sentence for whoever knows whose fault it is
    """What was given and what was expected, as the end of a sentence that begins with "gave"."""


def shown(value: object) -> str:
    """A value in one line that is not long, with its type where the text alone does not tell."""
    kind = type(value)
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - a stranger's __repr__
        text = "something without a text"
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return text if kind.__module__ == "builtins" or kind.__name__ in text else f"{text} of type {kind.__name__!r}"


def of(kind: type[T], value: object, expected: str, where: str = "") -> T:
    """`value` if it is a `kind`.

    Args:
        kind: a class.
        value: what was given.
        expected: in words.
        where: what it is a part of, such as `a batch whose split is`.
    """
    if not isinstance(value, kind):
        raise Wrong(f"{where} {shown(value)}; expected {expected}".strip())
    return value


def many(kind: type[T], value: object, expected: str, what: str = "") -> Sequence[T]:
    """A list or tuple of `kind`; one that stands alone, a text or a generator is none.

    Args:
        kind: of each.
        value: what was given.
        expected: what each is, in words.
        what: what the list is a part of, such as `a batch whose contexts`.
    """
    where = f"{what} are" if what else ""
    if not isinstance(value, list | tuple):
        raise Wrong(f"{where} {shown(value)}; expected a list, each {expected}".strip())
    items = cast(Sequence[object], value)
    for position, item in enumerate(items):
        if not isinstance(item, kind):
            raise Wrong(f"{where or 'a list'} with {shown(item)} at [{position}]; expected {expected}")
    return cast(Sequence[T], items)


def choice(value: object, known: Collection[str], where: str) -> None:
    """One of some texts, with a did-you-mean."""
    if isinstance(value, str) and value in known:
        return
    close = difflib.get_close_matches(value, list(known), n=1) if isinstance(value, str) else []
    hint = f"did you mean {close[0]!r}?" if close else f"expected one of: {', '.join(map(repr, known))}"
    raise Wrong(f"{where} {shown(value)}; {hint}")


def number(value: object, where: str, expected: str = "a finite number") -> None:
    """An int or float that is finite; a bool is none, nor is a number of numpy's that JSON does not know."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        hint = " (float(x) makes one)" if hasattr(value, "dtype") else ""
        raise Wrong(f"{where} {shown(value)}; expected {expected}{hint}")
    if not (math.isfinite(value) if isinstance(value, float) else abs(value) <= sys.float_info.max):
        raise Wrong(f"{where} {shown(value)}; expected {expected}")


def whole(value: object, where: str, least: int = 0) -> None:
    """An int of at least `least`, and not of more digits than Python writes."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Wrong(f"{where} {shown(value)}; expected a whole number of at least {least}")
    if value.bit_length() > _LONGEST_BITS:
        raise Wrong(f"{where} an int of {value.bit_length():,} bits; expected at most {_LONGEST_BITS:,}")


def encodable(value: str, where: str) -> bytes:
    """The UTF-8 of a text that can be written to a file."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Wrong(f"{where} {shown(value)}; expected a text without lone surrogates, which no file holds") from None


def numbers(value: object, what: str) -> None:
    """A mapping from texts to finite numbers."""
    for key, item in table(value, what, "finite numbers by name").items():
        number(item, f"{what} with, at [{key!r}],", "a finite number; leave out what has none")


def texts(value: object, what: str) -> None:
    """A mapping from texts to texts."""
    for key, item in table(value, what, "texts by name").items():
        of(str, item, "a text", f"{what} with, at [{key!r}],")


def table(value: object, what: str, expected: str) -> Mapping[str, Any]:
    """A mapping from texts to anything."""
    if not isinstance(value, Mapping):
        raise Wrong(f"{what} {shown(value)}; expected {expected}")
    for key in cast(Mapping[object, object], value):
        of(str, key, "a text", f"{what} with the key")
    return cast(Mapping[str, Any], value)


def plain(value: object, what: str, path: str = "") -> Json:
    """A copy of `value` that is what JSON would give back: tuples are lists.

    Args:
        value: what was given.
        what: what it is, such as `a state`.
        path: where in it.

    Raises:
        Wrong: something in it that JSON cannot hold, or would give back as something else (keys that are no texts).
    """
    where = f"{what} with, at {path}," if path else what
    if value is None or (isinstance(value, bool | str | int | float) and not hasattr(value, "dtype")):
        if isinstance(value, float):
            number(value, where)
        if isinstance(value, int) and value.bit_length() > _LONGEST_BITS:
            raise Wrong(f"{where} an int of {value.bit_length():,} bits; expected at most {_LONGEST_BITS:,}")
        return value
    if isinstance(value, list | tuple):
        items = cast(Sequence[object], value)
        return [plain(item, what, f"{path}[{position}]") for position, item in enumerate(items)]
    if isinstance(value, Mapping):
        found = cast(Mapping[object, object], value)
        for key in found:
            of(str, key, "a text, since JSON has no other keys", f"{where} the key".replace(", the", " the"))
        return {str(key): plain(item, what, f"{path}[{key!r}]") for key, item in found.items()}
    hint = "; x.tolist() or float(x) makes numpy's values plain" if hasattr(value, "dtype") else ""
    raise Wrong(f"{where} {shown(value)}, which JSON cannot hold; expected {_HELD}{hint}")


def has(thing: object, names: Collection[str], expected: str) -> None:
    """An object with attributes of these names."""
    missing = sorted(name for name in names if not hasattr(thing, name))
    if missing:
        raise Wrong(f"{shown(thing)}, which lacks {', '.join(map(repr, missing))}; expected {expected}")
