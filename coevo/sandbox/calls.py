"""The pipes between a problem's `solve` and the candidate's function, which are in two processes; and arguments.

Arguments go to the candidate as `marshal` data, which only the candidate has to believe. How answers come back is in
`coevo.sandbox.answers`.
"""

from __future__ import annotations

import marshal
import os
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 16
_DEEPEST = 100
_PLAIN = frozenset({int, float, str, bool, type(None), complex, bytes})
_UNCHANGING = _PLAIN | {np.float64, np.int64, np.float32, np.int32, np.bool_}
_KINDS = "biufcmM"

NEW, SAME, CHANGED, SCALAR, FLAT, LIST, TUPLE, DICT, SET = range(9)

Array: TypeAlias = "np.ndarray[Any, Any]"
_Form: TypeAlias = "tuple[np.dtype[Any] | None, tuple[int, ...]]"
_FIXED: _Form = (None, ())
"""In the place of type and shape: of an array that was read-only when it was given."""


class GoneError(Exception):
    """The other side has closed its end."""


def send(fd: int, *parts: bytes | bytearray) -> None:
    """Write one message.

    Raises:
        GoneError: nobody reads any more.
    """
    data = b"".join((_LENGTH.pack(sum(map(len, parts))), *parts))
    try:
        written = os.write(fd, data)
        if written < len(data):
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(fd, rest) :]
    except BrokenPipeError:
        raise GoneError from None


def receive(fd: int, most: int) -> bytes:
    """Read one message of at most `most` bytes.

    Raises:
        GoneError: the other side has closed before it was whole.
        ValueError: it is longer, or more than one came.
    """
    data = os.read(fd, _CHUNK)
    while len(data) < _LENGTH.size:
        data += _more(fd, _CHUNK)
    (size,) = _LENGTH.unpack_from(data)
    if size > most:
        raise ValueError(f"more than {most} bytes at once")
    if len(data) < size + _LENGTH.size:
        whole = bytearray(data)
        while (missing := size + _LENGTH.size - len(whole)) > 0:
            whole += _more(fd, min(missing, 1 << 20))
        data = bytes(whole)
    if len(data) > size + _LENGTH.size:
        raise ValueError("more than one answer to a call")
    return data[_LENGTH.size :]


def _more(fd: int, size: int) -> bytes:
    data = os.read(fd, size)
    if not data:
        raise GoneError
    return data


class Arguments:
    """The arguments of calls on their way to the candidate.

    An array that is given again, as the same object, is the same object there: it is sent once, and again only where it
    has changed. One whose shape or type has changed is another object. One that is read-only is not looked at again.
    """

    def __init__(self) -> None:
        self._sent: dict[object, tuple[Array, _Form, bytes]] = {}

    def pack(self, name: str, arguments: Sequence[object], named: Mapping[str, object]) -> bytes:
        """A call of the function `name` as bytes.

        Raises:
            TypeError: an argument is nothing that can be sent; says what can.
        """
        call: list[object] = [name, [self._pack(place, value) for place, value in enumerate(arguments)]]
        if named:
            call.append({key: self._pack(key, value) for key, value in named.items()})
        return marshal.dumps(call)

    def _pack(self, slot: object, value: object) -> object:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is np.ndarray:
            array = cast(Array, value)
            known = self._sent.get(slot)
            if known is not None and known[0] is array:
                if known[1] is _FIXED and not array.flags.writeable:
                    return (SAME, slot)
                data, form = _data(array), (array.dtype, array.shape)
                if known[1] == form:
                    if known[2] == data:
                        return (SAME, slot)
                    self._sent[slot] = array, form, data
                    return (CHANGED, slot, data)
            data = _data(array)
            self._sent[slot] = array, _form(array), data
            return (NEW, slot, array.dtype.str, array.shape, data)
        return _pack_other(value, 0)


def _form(array: Array) -> _Form:
    return (array.dtype, array.shape) if array.flags.writeable else _FIXED


def _data(array: Array) -> bytes:
    if array.dtype.kind not in _KINDS:
        raise TypeError(f"an array of type {array.dtype}")
    return array.tobytes()


def _pack_other(value: object, depth: int) -> object:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if depth > _DEEPEST:
        raise TypeError(f"a value nested more than {_DEEPEST} deep")
    if isinstance(value, np.generic):
        scalar: Array = np.asarray(cast(Any, value))
        return (SCALAR, scalar.dtype.str, _data(scalar))
    if isinstance(value, np.ndarray):
        array = cast(Array, value)
        return (NEW, None, array.dtype.str, array.shape, _data(array))
    if kind in (list, tuple):
        items = cast("Sequence[object]", value)
        if _PLAIN.issuperset(map(type, items)):
            return (FLAT, value)
        return (LIST if kind is list else TUPLE, [_pack_other(item, depth + 1) for item in items])
    if kind is dict:
        pairs = cast("dict[object, object]", value).items()
        return (DICT, [(_pack_other(key, depth + 1), _pack_other(item, depth + 1)) for key, item in pairs])
    if kind in (set, frozenset):
        return (SET, kind is frozenset, [_pack_other(item, depth + 1) for item in cast("Iterable[object]", value)])
    raise TypeError(f"a {kind.__module__}.{kind.__qualname__}")


class Copies:
    """Arguments as they would arrive, without the way."""

    def __init__(self) -> None:
        self._sent: dict[object, tuple[Array, _Form, bytes, Array]] = {}
        self._received = Received()

    def take(self, slot: object, value: object) -> Any:
        """A copy of an argument, the same one where the same unchanged array is given again.

        Raises:
            TypeError: it is nothing that can be sent; says what it is.
        """
        kind = type(value)
        if kind in _UNCHANGING:
            return value
        if kind is not np.ndarray:
            return self._received.value(_pack_other(value, 0))
        array, known = cast(Array, value), self._sent.get(slot)
        if known is not None and known[0] is array:
            if known[1] is _FIXED and not array.flags.writeable:
                return known[3]
            data, form = _data(array), (array.dtype, array.shape)
            if known[1] == form:
                copy = known[3]
                if known[2] != data:
                    copy[...] = array
                    self._sent[slot] = array, form, data, copy
                return copy
        copy = array.copy()
        self._sent[slot] = array, _form(array), _data(array), copy
        return copy


class Received:
    """The candidate's side of `Arguments`."""

    def __init__(self) -> None:
        self._slots: dict[object, Array] = {}

    def unpack(self, call: bytes) -> tuple[str, list[object], dict[str, object]]:
        """Name, arguments and named arguments of a call."""
        name, arguments, *named = marshal.loads(call)
        return (
            name,
            [value if type(value) in _PLAIN else self.value(value) for value in arguments],
            {key: self.value(value) for key, value in named[0].items()} if named else {},
        )

    def value(self, packed: Any) -> Any:
        """What was packed."""
        if type(packed) is not tuple:
            return packed
        kind, first, *rest = cast("tuple[Any, ...]", packed)
        if kind == SAME:
            return self._slots[first]
        if kind == NEW:
            dtype, shape, data = rest
            array: Array = np.ndarray(shape, dtype, bytearray(data))
            if first is not None:
                self._slots[first] = array
            return array
        if kind == CHANGED:
            array = self._slots[first]
            array[...] = np.frombuffer(rest[0], array.dtype).reshape(array.shape)
            return array
        if kind == SCALAR:
            return np.frombuffer(rest[0], first)[0]
        if kind == FLAT:
            return first
        if kind == DICT:
            return {self.value(key): self.value(item) for key, item in first}
        if kind == SET:
            return (frozenset if first else set)(map(self.value, rest[0]))
        items = [self.value(item) for item in first]
        return items if kind == LIST else tuple(items)
