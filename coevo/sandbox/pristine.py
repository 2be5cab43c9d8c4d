"""Whether the author's code left everything as it found it, so that its process may value another program."""

from __future__ import annotations

import copy
import os
import types
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

_DEEPEST = 20
_SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)


class Pristine:
    """A copy of the instances, and of what evaluate.py holds besides, as they were after loading."""

    def __init__(self, problem: object, instances: Sequence[object]) -> None:
        """Copy; what has no copy counts as changed each time."""
        self._problem, self._instances = problem, instances
        self._copies: list[object] | None = None
        self._held: dict[str, object] | None = None
        try:
            self._copies = copy.deepcopy(list(instances))
            self._held = copy.deepcopy(_held(problem))
        except Exception:  # noqa: BLE001 - a lock, a generator, or a class that will not be copied
            self._copies = None

    def unchanged(self, first: int, count: int) -> bool:
        """Whether `count` instances from `first` on, and all else, are as they were."""
        if self._copies is None or self._held is None:
            return False
        seen = slice(first, first + count)
        return _same(self._instances[seen], self._copies[seen], 0) and _same(_held(self._problem), self._held, 0)


def _held(problem: object) -> dict[str, object]:
    """What a module keeps that can change: values, attributes of its classes, defaults and attributes of functions."""
    found: dict[str, object] = {"": (os.getcwd(), dict(os.environ), np.geterr())}
    for name, value in list(vars(problem).items()):
        if name.startswith("__") or isinstance(value, types.ModuleType):
            continue
        own = getattr(value, "__module__", None) == getattr(problem, "__name__", None)
        if isinstance(value, types.FunctionType):
            if own:
                found[name] = (value.__defaults__, value.__kwdefaults__, dict(value.__dict__))
        elif isinstance(value, type):
            if own:
                items = vars(cast("type[object]", value)).items()
                found[name] = {n: v for n, v in items if not n.startswith("__") and _is_value(v)}
        elif _is_value(value):
            found[name] = value
    return found


def _is_value(value: object) -> bool:
    """Whether it is no function, descriptor or type, however compiled."""
    return not callable(value) and not hasattr(type(value), "__get__")


def _same(one: Any, other: Any, depth: int) -> bool:
    """Whether a value is as its copy is; False too where that cannot be told."""
    if one is other and depth and not isinstance(one, list | dict | set | np.ndarray):
        return True  # what a copy shares cannot change
    if type(cast(object, one)) is not type(cast(object, other)) or depth > _DEEPEST:
        return False
    if isinstance(one, _SCALARS):
        return bool(one == other or (one != one and other != other))
    if isinstance(one, np.ndarray):
        return _same_array(cast("np.ndarray[Any, Any]", one), cast("np.ndarray[Any, Any]", other), depth)
    if isinstance(one, list | tuple):
        items = cast("list[object]", one)
        return len(items) == len(other) and all(_same(a, b, depth + 1) for a, b in zip(items, other, strict=True))
    if isinstance(one, dict):
        content = cast("dict[object, object]", one)
        return content.keys() == other.keys() and all(_same(v, other[k], depth + 1) for k, v in content.items())
    attributes = cast("dict[str, object] | None", getattr(cast(object, one), "__dict__", None))
    if attributes is not None:
        return _same(attributes, other.__dict__, depth + 1)
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - the class is the author's
        return False


def _same_array(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], depth: int) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype.hasobject:
        return _same(one.tolist(), other.tolist(), depth + 1)
    return np.array_equal(one, other) or one.tobytes() == other.tobytes()
