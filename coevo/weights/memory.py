"""Where a master's bytes live: memory of this process and its children, an unlinked file, or a named one.

The layout is a function of the selection, so that processes which agree on the selection agree on the bytes:
one header page that starts with `mark`, then the tensors by sorted name.
"""

import errno
import hashlib
import json
import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from coevo.errors import UserError
from coevo.weights import noise
from coevo.weights.dtypes import Float32s
from coevo.weights.selection import Selection, TensorSpec
from coevo.weights.stored import StoredTensor

_ALIGNMENT = 64
_HEADER = mmap.ALLOCATIONGRANULARITY
_CHUNK = 1 << 22


def layout(selection: Selection) -> tuple[dict[str, int], int]:
    """Byte offset of each tensor, aligned for vector loads, and the size of the whole."""
    offsets: dict[str, int] = {}
    at = _HEADER
    for spec in selection.tensors:
        offsets[spec.name] = at
        at += -(-4 * spec.size // _ALIGNMENT) * _ALIGNMENT
    return offsets, at


def mark(selection: Selection) -> bytes:
    """What a shared master begins with: only the same tensors in the same places have it."""
    layout = [[spec.name, list(spec.shape)] for spec in selection.tensors]
    return b"coevo master 1\n" + hashlib.sha256(json.dumps(layout).encode()).digest()


def views(memory: mmap.mmap, selection: Selection) -> dict[str, Float32s]:
    """The tensors in `memory` by name, each in its shape; they keep the memory alive."""
    offsets, _ = layout(selection)
    return {
        spec.name: np.frombuffer(memory, dtype="<f4", count=spec.size, offset=offsets[spec.name]).reshape(spec.shape)
        for spec in selection.tensors
    }


def reserve(size: int, where: str, scratch: Path | None, named: Path | None) -> mmap.mmap:
    """Memory of `size` bytes: a new file `named`, an unlinked one in `scratch`, or none at all.

    Raises:
        UserError: If there is not enough room.
    """
    if named is None and scratch is None and where == "host":
        return mmap.mmap(-1, size)
    folder = Path(tempfile.gettempdir()) if scratch is None else scratch
    try:
        with named.open("x+b") if named is not None else tempfile.TemporaryFile(dir=folder) as file:
            _allocate(file, size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        place = str(named.parent if named is not None else folder)
        raise UserError(f"no room for the fp32 master, {size / 1e9:.2f} GB in {place!r}: {error.strerror}") from None


def _allocate(file: IO[bytes], size: int) -> None:
    """Makes the file that long, with its blocks reserved: writing to a hole of a full disk kills the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    if shutil.disk_usage(file.fileno()).free < size:
        raise OSError(errno.ENOSPC, "No space left on device")
    file.truncate(size)


def check_held(selection: Selection, stored: Mapping[str, StoredTensor]) -> None:
    """Refuse a selection of other tensors than the checkpoint has, before there is memory for them.

    Raises:
        UserError: the checkpoint lacks one, or has it in another shape.
    """
    for spec in selection.tensors:
        found = stored.get(spec.name)
        if found is None or found.shape != spec.shape:
            raise UserError(
                f"the checkpoint does not hold {spec.name[:200]!r} of shape {str(spec.shape)[:60]}; was it changed?"
            )


def load_exactly(view: Float32s, spec: TensorSpec, stored: Mapping[str, StoredTensor]) -> None:
    """Fills the view (spec.shape) with what the checkpoint stores; widening to fp32 is exact.

    Raises:
        UserError: If the checkpoint stores its aliases different, or holds NaN in it.
    """
    raw = stored[spec.name].read()
    for alias in spec.aliases:
        if alias in stored and not np.array_equal(_bits(stored[alias].read()), _bits(raw)):
            raise UserError(
                f"the model ties {alias!r} to {spec.name!r}, but the checkpoint stores them different: "
                "leave one out, or set tie_word_embeddings to false in its config.json"
            )
    target, source = view.reshape(-1), raw.reshape(-1)
    for begin in range(0, spec.size, _CHUNK):
        piece, part = target[begin : begin + _CHUNK], source[begin : begin + _CHUNK]
        piece[...] = noise.from_bfloat16(part) if part.dtype == np.uint16 else part
        if np.isnan(piece).any():
            raise UserError(f"the checkpoint's {spec.name!r} holds NaN; expected a checkpoint of numbers")


def _bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(f"<u{array.itemsize}")
