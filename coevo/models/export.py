"""Writing a model folder: the base's files around the weights of a master, without torch.

The files have the names, and the tensors the order of the base's, so that an index stays valid. Tensors that
no run moves (buffers, a vision tower) are copied as they are stored.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from coevo.errors import RunError, UserError, did_you_mean
from coevo.files import open_own, why_not, write_atomic
from coevo.models.catalogue import NOTE as MODEL_NOTE
from coevo.records import Json
from coevo.weights.dtypes import DTYPES, DType, Stored, held_as
from coevo.weights.stored import INDEX, Piece, StoredTensor, open_checkpoint, read_json, write_pieces

if TYPE_CHECKING:
    from coevo.weights.master import Master
    from coevo.weights.selection import TensorSpec

_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".tflite"}
_TEMPLATES = "additional_chat_templates"
"""Where transformers keeps chat templates beside the default one."""
NOTE = "coevo-export.json"
"""The file in an exported folder that says which run's weights these are."""


def export_model(
    master: Master, base: Path, out: Path, dtype: str | None = None, note: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Write the master's centre as a model folder; nothing is left at `out` unless all of it is.

    Args:
        master: the weights.
        base: the model folder that they were selected from.
        out: a folder that does not exist, or is empty.
        dtype: of the selected tensors; None is what the base stores each of them in.
        note: what to write down beside the weights of where they come from.

    Returns:
        `note` with `dtype` (the formats written) and `tensors` (how many were selected).

    Raises:
        UserError: `out` is taken or cannot be made, or `dtype` is unknown.
        RunError: the disk is full, or the like.
    """
    check_target(out, dtype)
    with _scratch(out) as temporary:
        written = write_model(master, base, temporary, cast("DType | None", dtype))
        record: dict[str, Json] = {**(note or {}), "dtype": written, "tensors": len(master.selection.tensors)}
        if note is not None:
            _write_json(temporary / NOTE, record)
        # A rename replaces an empty folder and nothing else.
        temporary.replace(out)
    return record


def check_target(out: Path, dtype: str | None) -> None:
    """Refuse an unknown format, and a place where the folder cannot be made.

    Raises:
        UserError: which.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"cannot export as {dtype!r}{did_you_mean(dtype, DTYPES)}")
    _check_place(out)


def write_model(master: Master, base: Path, out: Path, dtype: DType | None = None) -> str:
    """Fill the folder `out` with the master's centre and everything else of `base`.

    Args:
        master: the weights.
        base: the model folder that they were selected from.
        out: an empty folder.
        dtype: of the selected tensors; None is what the base stores each of them in.

    Returns:
        The formats written, `bfloat16` or `bfloat16, float32`.
    """
    specs = {name: spec for spec in master.selection.tensors for name in (spec.name, *spec.aliases)}
    files: dict[str, dict[str, Piece]] = {}
    for name, entry in open_checkpoint(base).items():
        piece = _moved(name, specs[name], master, dtype) if name in specs else _kept(entry)
        files.setdefault(entry.file.name, {})[name] = piece
    for file, pieces in files.items():
        write_safetensors(out / file, pieces)
    _copy_rest(base, out)
    if (base / INDEX).is_file():
        index: dict[str, Any] = dict(read_json(base / INDEX))
        metadata = cast(dict[str, Json], index.get("metadata") or {})
        index["metadata"] = {
            **metadata,
            "total_size": sum(p.size for pieces in files.values() for p in pieces.values()),
        }
        _write_json(out / INDEX, index)
    if dtype is not None:
        _write_json(out / "config.json", _with_dtype(read_json(base / "config.json"), dtype))
    return ", ".join(sorted({dtype or spec.dtype for spec in master.selection.tensors}))


def _moved(name: str, spec: TensorSpec, master: Master, dtype: DType | None) -> Piece:
    format_ = dtype or spec.dtype

    def make() -> Stored:
        values = np.empty(spec.shape, dtype=held_as(format_))
        master.centre(name, values)
        return values

    return Piece.of(format_, spec.shape, make)


def _kept(entry: StoredTensor) -> Piece:
    size = entry.end - entry.begin

    def make() -> memoryview:
        if size == 0:  # no file maps nothing
            return memoryview(b"")
        return np.memmap(entry.file, dtype=np.uint8, mode="r", offset=entry.begin, shape=(size,)).data

    return Piece(entry.code, entry.shape, size, make)


def write_safetensors(path: Path, pieces: Mapping[str, Piece]) -> None:
    """Write one safetensors file, a tensor at a time, on disk when this returns."""
    with open_own(path, "xb") as file:
        write_pieces(file, pieces, {"format": "pt"})
        file.flush()
        os.fsync(file.fileno())


def _copy_rest(base: Path, out: Path) -> None:
    """Everything beside the weights; not coevo's note, which is about the base's own.

    Raises:
        UserError: a link leads out of the folder, whose place a stranger's run may have named.
    """
    for path in sorted(base.iterdir()):
        # An index of another format than safetensors names files that are not copied.
        leave = path.suffix in _WEIGHTS or path.name.endswith(".index.json") or path.name in (MODEL_NOTE, NOTE)
        if path.is_file() and not leave:
            shutil.copyfile(_inside(path, base), out / path.name)
    if (base / _TEMPLATES).is_dir():
        (out / _TEMPLATES).mkdir()
        for path in (base / _TEMPLATES).glob("*.jinja"):
            if path.is_file():
                shutil.copyfile(_inside(path, base), out / _TEMPLATES / path.name)


def _inside(path: Path, base: Path) -> Path:
    """Where a file of a model folder really is: in the folder, or with the other files of a hub's cache."""
    real, home = path.resolve(), base.resolve()
    # <model>/snapshots/<revision>/config.json is a link to <model>/blobs/<digest>.
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else home
    if not (real.is_relative_to(home) or real.is_relative_to(blobs)):
        raise UserError(
            f"cannot export: {str(path)!r} of the base model leads to {str(real)!r}, out of its folder; put a copy of "
            "it there"
        )
    return real


def _with_dtype(config: Mapping[str, object], dtype: DType) -> dict[str, object]:
    """The model's config saying `dtype` wherever it names one; older versions say `torch_dtype`."""
    keys = ("dtype", "torch_dtype")
    changed: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            changed[key] = _with_dtype(cast(Mapping[str, object], value), dtype)
        else:
            changed[key] = dtype if key in keys and isinstance(value, str) else value
    return changed


def _write_json(path: Path, value: Mapping[str, Json]) -> None:
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _check_place(out: Path) -> None:
    """Refuse a place where the folder cannot be made.

    Raises:
        UserError: it is a file, holds something, or is below a file or a folder that cannot be written.
    """
    try:
        taken = out.is_dir() and any(out.iterdir())
    except OSError as error:
        raise UserError(f"cannot export to {str(out)!r}: it cannot be read: {error.strerror}") from None
    if taken:
        raise UserError(f"cannot export to {str(out)!r}: it is not empty; give a folder that does not exist")
    if os.path.lexists(out) and not out.is_dir():
        raise UserError(f"cannot export to {str(out)!r}: it is a file; give a folder that does not exist")
    if reason := why_not(out):
        raise UserError(f"cannot export to {str(out)!r}: it cannot be made: {reason}")


@contextmanager
def _scratch(out: Path) -> Generator[Path]:
    """A temporary folder beside `out`, gone at the end unless it was renamed."""
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    except OSError as error:
        raise UserError(f"cannot export to {str(out)!r}: it cannot be made: {error.strerror}") from None
    temporary.chmod(0o755)  # mkdtemp's is for the owner alone; a model folder is an ordinary one
    try:
        yield temporary
    except OSError as error:
        raise RunError(f"export to {str(out)!r} failed: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
