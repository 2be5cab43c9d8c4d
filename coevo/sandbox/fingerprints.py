"""A hash of an instance, to tell whether two are the same; some cannot be told."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np

_DEEPEST = 20
_SCALARS = (bool, int, float, complex, str, bytes, np.generic)


def fingerprint(instance: object) -> str | None:
    """A hash that equal instances share and others do not; None for what has no plain content (a function, a file)."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        _feed(instance, digest.update, 0)
    except TypeError:
        return None
    return digest.hexdigest()


def fingerprints(instances: Iterable[object]) -> list[str] | None:
    """One hash per instance; None if one of them has none."""
    found = [fingerprint(instance) for instance in instances]
    return None if None in found else cast("list[str]", found)


def _feed(value: Any, update: Callable[[bytes], object], depth: int) -> None:
    """Feed a value's type and content.

    Raises:
        TypeError: it has no plain content, or refers to itself.
    """
    if depth > _DEEPEST:
        raise TypeError("nested too deeply")
    kind = type(value).__name__

    def parts(items: Iterable[Any], count: int) -> None:
        update(f"{kind}[{count}]".encode())
        for item in items:
            _feed(item, update, depth + 1)

    if value is None or isinstance(value, _SCALARS):
        text = repr(cast("object", value)).encode(errors="surrogatepass")
        update(f"{kind}:{len(text)}:".encode() + text)
    elif isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, np.dtype[Any]]", value)
        if array.dtype.hasobject:
            parts(array.tolist(), array.size)
        else:
            update(f"{kind}{array.dtype.str}{array.shape}".encode())
            update(np.ascontiguousarray(array).tobytes())
    elif isinstance(value, list | tuple):
        parts(cast("list[Any]", value), len(cast("list[Any]", value)))
    elif isinstance(value, dict):
        content = cast("dict[Any, Any]", value)
        parts(sorted(content.items(), key=lambda item: repr(item[0])), len(content))
    elif isinstance(value, set | frozenset):
        content = sorted(cast("set[Any]", value), key=repr)
        parts(content, len(content))
    else:
        parts(fields := _fields(value), len(fields))


def _fields(value: Any) -> list[tuple[str, Any]]:
    """The attributes of a plain object, sorted by name."""
    if dataclasses.is_dataclass(value):
        return sorted((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    if callable(value) or isinstance(value, type) or not hasattr(value, "__dict__"):
        raise TypeError(f"a {type(value).__name__} has no plain content")
    return sorted(cast("dict[str, Any]", vars(value)).items(), key=lambda item: item[0])
