"""Tensors in safetensors files, read by header and memory map and written in one atomic step.

Covered: a checkpoint folder (one `model.safetensors`, or shards and their index) and single files. The
`safetensors` package is not used here because numpy has no bfloat16, and coevo wants the raw bits.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from coevo.errors import UserError
from coevo.files import replacing
from coevo.weights.dtypes import FROM_SAFETENSORS, TO_SAFETENSORS, DType, held_as
from coevo.weights.parts import INDEX, SINGLE, check_tensors, read_json, shortened, text_part, weight_files

__all__ = [
    "INDEX", "SINGLE", "Piece", "StoredTensor", "open_checkpoint", "open_file", "read_json", "shortened", "text_part",
    "write_file", "write_pieces",
]  # fmt: skip

_ALIGNMENT = 8
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies: `code` is the safetensors dtype ('BF16'), `begin` and `end` are bytes of `file`."""

    file: Path
    code: str
    shape: tuple[int, ...]
    begin: int
    end: int

    def read(self) -> NDArray[Any]:
        """The tensor as it is stored, read-only, mapped and not copied; bfloat16 as uint16 patterns.

        Raises:
            UserError: If it is stored in a format other than float32, bfloat16 and float16.
        """
        if self.code not in FROM_SAFETENSORS:
            raise UserError(f"{str(self.file)!r} stores {self.code}, expected one of {sorted(FROM_SAFETENSORS)}")
        held = held_as(FROM_SAFETENSORS[self.code])
        if self.begin == self.end:
            return np.empty(self.shape, dtype=held)
        raw = np.memmap(self.file, dtype=np.uint8, mode="r", offset=self.begin, shape=(self.end - self.begin,))
        return raw.view(np.ndarray).view(held).reshape(self.shape)


def open_file(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors of one safetensors file by name, and its metadata.

    Raises:
        UserError: If the file is not whole and well-formed.
    """
    try:
        if not path.is_file():
            raise ValueError("it is no file")  # opening a pipe may never end
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if not 2 <= length <= min(_LONGEST_HEADER, size - 8):
                raise ValueError(f"the header cannot be {length} bytes long")
            header: Any = json.loads(file.read(length))
        metadata: Any = header.pop("__metadata__", None) or {}
        if not isinstance(metadata, dict):
            raise ValueError(f"its metadata is {metadata!r:.60}")
        tensors = {name: _described(path, entry, 8 + length, size) for name, entry in header.items()}
    except OSError as error:
        raise UserError(f"cannot read {str(path)!r}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(f"{str(path)!r} is not a whole safetensors file: {error}") from None
    return tensors, cast(dict[str, str], metadata)


def _described(path: Path, entry: Any, origin: int, size: int) -> StoredTensor:
    code, shape, (begin, end) = str(entry["dtype"]), tuple(int(n) for n in entry["shape"]), entry["data_offsets"]
    if not (isinstance(begin, int) and isinstance(end, int)):
        raise ValueError(f"a tensor at bytes {begin!r:.40} to {end!r:.40}")
    if not (0 <= begin <= end <= size - origin) or min(shape, default=0) < 0:
        raise ValueError(f"a tensor of shape {shape} at bytes {begin} to {end} of {size - origin}")
    if code in FROM_SAFETENSORS and end - begin != math.prod(shape) * held_as(FROM_SAFETENSORS[code]).itemsize:
        raise ValueError(f"{end - begin} bytes for a {code} tensor of shape {shape}")
    return StoredTensor(path, code, shape, origin + begin, origin + end)


def open_checkpoint(folder: Path) -> dict[str, StoredTensor]:
    """All tensors of a checkpoint folder by name, whatever their format.

    Raises:
        UserError: If the folder holds no safetensors checkpoint, a broken one, or one that engines would read
            differently; the message says what was expected.
    """
    places = weight_files(folder)
    if not places:
        return open_file(folder / SINGLE)[0]
    shards = {file: open_file(folder / file)[0] for file in sorted(set(places.values()))}
    check_tensors(folder, places, shards)
    return {name: shards[file][name] for name, file in places.items()}


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor to write: its safetensors code, its shape, its size and what makes its bytes when it is its turn."""

    code: str
    shape: tuple[int, ...]
    size: int
    make: Callable[[], memoryview]

    @classmethod
    def of(cls, dtype: DType, shape: tuple[int, ...], make: Callable[[], NDArray[Any]]) -> Piece:
        """A tensor that `make` gives in `dtype`, bfloat16 as uint16 patterns."""
        size = math.prod(shape) * held_as(dtype).itemsize
        return cls(
            TO_SAFETENSORS[dtype], shape, size, lambda: np.ascontiguousarray(make()).reshape(-1).view(np.uint8).data
        )


def write_pieces(file: IO[bytes], pieces: Mapping[str, Piece], metadata: Mapping[str, str]) -> None:
    """Writes the contents of a safetensors file, a tensor at a time in the order of `pieces`.

    Raises:
        ValueError: If a tensor has another size than announced.
    """
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    for name, piece in pieces.items():
        header[name] = {"dtype": piece.code, "shape": list(piece.shape), "data_offsets": [at, at + piece.size]}
        at += piece.size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    file.write(len(encoded).to_bytes(8, "little") + encoded)
    for name, piece in pieces.items():
        data = piece.make()
        if data.nbytes != piece.size:
            raise ValueError(f"{name!r} has {data.nbytes} bytes, {piece.size} were announced")
        file.write(data)


def write_file(
    path: Path,
    tensors: Mapping[str, tuple[DType, tuple[int, ...]]],
    contents: Callable[[str], NDArray[Any]],
    metadata: Mapping[str, str],
) -> None:
    """Writes one safetensors file; under its name there is the old one or the whole new one, also after a crash.

    Args:
        path: Where to; its folder exists.
        tensors: Format and shape by name.
        contents: Gives each tensor, asked for by name one after the other; bfloat16 as uint16 patterns.
        metadata: Goes into the header.

    Raises:
        ValueError: If a tensor has another size than announced.
    """
    pieces = {name: Piece.of(dtype, shape, partial(contents, name)) for name, (dtype, shape) in sorted(tensors.items())}
    with replacing(path) as file:
        write_pieces(file, pieces, metadata)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
