"""What a candidate's function returns, as bytes: `marshal` and `pickle` must not read what a stranger wrote.

Each value is a letter and a body whose length is checked. Numbers, text, containers of them and numpy arrays arrive as
what they are; subclasses arrive as what they derive from; anything else as an `Opaque` object.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

import numpy as np

_COUNT = struct.Struct("<I")
_INT = struct.Struct("<q")
_FLOAT = struct.Struct("<d")
_COMPLEX = struct.Struct("<dd")
_DEEPEST = 100
_DIGITS = 4000
_TEXT = 200
_KINDS = "biufcmM"
_HEADS: dict[np.dtype[Any], bytes] = {}
_DTYPES: dict[bytes, np.dtype[Any]] = {}
_DTYPE = re.compile(rf"[<>|=][{_KINDS}]\d{{1,2}}(\[\d*\w+\])?")
_FIXED = frozenset({int, float, str, bool, type(None), complex, np.bool_, np.int64, np.float64, np.int32, np.float32})
"""Types of which nothing is copied, because nothing can change."""
_NONE, _TRUE, _FALSE = b"N", b"T", b"F"

Array: TypeAlias = "np.ndarray[Any, Any]"


class UnanswerableError(Exception):
    """It does not fit in an answer."""


class Opaque:
    """What is no number and no container: it has the name of its class, and its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def encode(value: object) -> bytes:
    """`value` as bytes.

    Raises:
        UnanswerableError: it is nested too deep.
        Exception: whatever a method of its class raises.
    """
    out = bytearray()
    _put(out, value, 0)
    return bytes(out)


def decode(data: bytes) -> object:
    """The value of `encode`.

    Raises:
        ValueError: `data` is none of its.
    """
    reader = _Reader(data)
    try:
        value = reader.value(0)
    except (struct.error, IndexError, TypeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if reader.place != len(data):
        raise ValueError("bytes are left")
    return value


def as_sent(value: object) -> object:
    """`value` as it would arrive, without the way."""
    kind = type(value)
    if kind in _FIXED:
        return value
    if kind is np.ndarray and (array := cast(Array, value)).dtype.kind in _KINDS:
        return array.copy()
    return decode(encode(value))


def _put(out: bytearray, value: object, depth: int) -> None:
    put = _EXACT.get(type(value))
    if put is not None:
        put(out, value, depth)
    elif isinstance(value, np.ndarray):
        _put_array(out, cast(Array, value), depth)
    elif isinstance(value, np.generic):
        _put_scalar(out, value, depth)
    else:
        _put_other(out, value, depth)


def _put_other(out: bytearray, value: object, depth: int) -> None:
    for base in (int, float, str, bytes, list, tuple, dict, set, frozenset):
        if isinstance(value, base):
            return _EXACT[base](out, base(cast(Any, value)), depth)
    if hasattr(value, "__array__"):
        return _put_array(out, np.asarray(value), depth)
    for convert, base in (("__index__", int), ("__float__", float)):
        if hasattr(value, convert):
            return _EXACT[base](out, base(cast(Any, value)), depth)
    _put_opaque(out, type(value).__name__, repr(value))
    return None


def _put_opaque(out: bytearray, name: str, text: str) -> None:
    out += b"?"
    _put_text(out, name[:_TEXT], 0)
    _put_text(out, text[:_TEXT], 0)


def _put_int(out: bytearray, value: Any, _depth: int) -> None:
    if -(1 << 63) <= value < 1 << 63:
        out += b"i" + _INT.pack(value)
    elif abs(value) < 10**_DIGITS:
        digits = str(value).encode()
        out += b"I" + _COUNT.pack(len(digits)) + digits
    else:
        _put_opaque(out, "int", f"an integer of {value.bit_length()} bits")


def _put_float(out: bytearray, value: Any, _depth: int) -> None:
    out += b"f" + _FLOAT.pack(value)


def _put_text(out: bytearray, value: Any, _depth: int) -> None:
    data = value.encode(errors="surrogatepass")
    out += b"s" + _COUNT.pack(len(data)) + data


def _put_bytes(out: bytearray, value: Any, _depth: int) -> None:
    out += b"b" + _COUNT.pack(len(value)) + value


def _put_number(out: bytearray, value: Any, _depth: int) -> None:
    out += b"g" + _dtype(value) + value.tobytes()


def _put_scalar(out: bytearray, value: Any, depth: int) -> None:
    array = np.asarray(value)
    if array.dtype.kind in _KINDS:
        out += b"g" + _dtype(array) + array.tobytes()
    else:
        _put(out, value.item(), depth + 1)


def _put_array(out: bytearray, value: Any, depth: int) -> None:
    shape = struct.pack(f"<B{value.ndim}Q", value.ndim, *value.shape)
    if value.dtype.kind in _KINDS:
        out += b"a" + _dtype(value) + shape + value.tobytes()
        return
    out += b"o" + shape
    for item in value.ravel().tolist():
        _put(out, item, depth + 1)


def _dtype(array: Array) -> bytes:
    dtype = array.dtype
    head = _HEADS.get(dtype)
    if head is None:
        text = dtype.str.encode()
        head = _HEADS[dtype] = bytes([len(text)]) + text
    return head


def _put_items(letter: bytes) -> Callable[[bytearray, Any, int], None]:
    def put(out: bytearray, value: Any, depth: int) -> None:
        if depth > _DEEPEST:
            raise UnanswerableError(f"the answer is nested more than {_DEEPEST} deep")
        out += letter + _COUNT.pack(len(value))
        for item in value:
            _put(out, item, depth + 1)

    return put


def _put_dict(out: bytearray, value: Any, depth: int) -> None:
    _put_items(b"d")(out, [part for pair in value.items() for part in pair], depth)


_EXACT: Mapping[type, Callable[[bytearray, Any, int], None]] = {
    type(None): lambda out, _value, _depth: out.extend(_NONE),
    bool: lambda out, value, _depth: out.extend(_TRUE if value else _FALSE),
    int: _put_int,
    float: _put_float,
    complex: lambda out, value, _depth: out.extend(b"c" + _COMPLEX.pack(value.real, value.imag)),
    str: _put_text,
    bytes: _put_bytes,
    bytearray: _put_bytes,
    np.ndarray: _put_array,
    **dict.fromkeys([np.int64, np.float64, np.int32, np.float32, np.bool_], _put_number),
    list: _put_items(b"l"),
    tuple: _put_items(b"t"),
    set: _put_items(b"e"),
    frozenset: _put_items(b"E"),
    dict: _put_dict,
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def value(self, depth: int) -> object:
        letter = self._take(1)
        read = _READ.get(letter)
        if read is None or depth > _DEEPEST + 5:
            raise ValueError(f"no value begins with {letter!r}")
        return read(self, depth)

    def _take(self, size: int) -> bytes:
        data = self._data[self.place : self.place + size]
        if len(data) != size:
            raise ValueError("it ends too early")
        self.place += size
        return data

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self._take(form.size))[0]

    def complex(self, _depth: int) -> complex:
        return complex(*_COMPLEX.unpack(self._take(_COMPLEX.size)))

    def sized(self, _depth: int) -> bytes:
        return self._take(self.number(_COUNT))

    def text(self, depth: int) -> str:
        return self.sized(depth).decode(errors="surrogatepass")

    def items(self, depth: int) -> list[object]:
        count = self.number(_COUNT)
        if count > len(self._data) - self.place:
            raise ValueError("it has more items than bytes")
        return [self.value(depth + 1) for _ in range(count)]

    def pairs(self, depth: int) -> dict[object, object]:
        items = iter(self.items(depth))
        return dict(zip(items, items, strict=True))

    def _dtype(self) -> np.dtype[Any]:
        data = self._take(self._take(1)[0])
        found = _DTYPES.get(data)
        if found is None:
            text = data.decode("ascii")
            if not _DTYPE.fullmatch(text):
                raise ValueError(f"no array has type {text!r}")
            found = _DTYPES[data] = np.dtype(text)
        return found

    def scalar(self, _depth: int) -> object:
        dtype = self._dtype()
        return np.frombuffer(self._take(dtype.itemsize), dtype)[0]

    def _shape(self) -> tuple[int, ...]:
        dimensions = self._take(1)[0]
        return struct.unpack(f"<{dimensions}Q", self._take(8 * dimensions))

    def array(self, _depth: int) -> Array:
        dtype, shape = self._dtype(), self._shape()
        size = dtype.itemsize
        for length in shape:
            size *= length
        return np.ndarray(shape, dtype, bytearray(self._take(size)))

    def objects(self, depth: int) -> Array:
        shape, count = self._shape(), 1
        for length in shape:
            count *= length
        if count > len(self._data) - self.place:
            raise ValueError("it has more items than bytes")
        array: Array = np.empty(count, object)
        for place in range(count):
            array[place] = self.value(depth + 1)
        return array.reshape(shape)

    def opaque(self, depth: int) -> Opaque:
        name, text = self.value(depth), self.value(depth)
        return type(str(name), (Opaque,), {})(str(text))


def _set(kind: Callable[[Iterable[object]], object]) -> Callable[[_Reader, int], object]:
    return lambda reader, depth: kind(reader.items(depth))


_READ: Mapping[bytes, Callable[[_Reader, int], object]] = {
    _NONE: lambda _reader, _depth: None,
    _TRUE: lambda _reader, _depth: True,
    _FALSE: lambda _reader, _depth: False,
    b"i": lambda reader, _depth: reader.number(_INT),
    b"I": lambda reader, depth: int(reader.sized(depth)),
    b"f": lambda reader, _depth: reader.number(_FLOAT),
    b"c": _Reader.complex,
    b"s": _Reader.text,
    b"b": _Reader.sized,
    b"g": _Reader.scalar,
    b"a": _Reader.array,
    b"o": _Reader.objects,
    b"l": _Reader.items,
    b"t": _set(tuple),
    b"e": _set(set),
    b"E": _set(frozenset),
    b"d": _Reader.pairs,
    b"?": _Reader.opaque,
}
