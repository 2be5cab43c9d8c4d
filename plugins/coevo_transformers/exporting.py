"""Writing the centre as a model folder that transformers loads."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coevo.errors import UserError
from coevo.weights.dtypes import DTYPES, FROM_SAFETENSORS, DType, held_as
from coevo.weights.master import Master
from coevo.weights.stored import INDEX, SINGLE, open_checkpoint, write_file

_LEAVE = {INDEX, "coevo-model.json"}
_COPIED = {".json", ".jinja", ".txt", ".model", ".tiktoken"}


def export(master: Master, base: Path, target: Path, dtype: str | None) -> None:
    """Write weights, config, tokenizer and generation config; the folder appears whole or not at all.

    Tensors of the checkpoint that are not selected (buffers, extra heads) are copied as they are.

    Args:
        master: What to write.
        base: The checkpoint that it was loaded from.
        target: A folder that does not exist yet, or is empty.
        dtype: The format of the selected tensors; None keeps each as the base has it.

    Raises:
        UserError: The target is in use, or the format unknown.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"cannot export as {dtype!r}; expected one of: {', '.join(DTYPES)}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"{str(target)!r} exists already; expected a new or empty folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.partial-", dir=target.parent))
    try:
        _write_weights(master, base, partial, dtype)
        for path in base.iterdir():
            if path.is_file() and path.suffix in _COPIED and path.name not in _LEAVE:
                shutil.copyfile(path, partial / path.name)
        if dtype is not None:
            _note_dtype(partial / "config.json", dtype)
        partial.chmod(0o755)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_weights(master: Master, base: Path, folder: Path, dtype: DType | None) -> None:
    names = {name: spec for spec in master.selection.tensors for name in (spec.name, *spec.aliases)}
    stored = {
        name: entry for name, entry in open_checkpoint(base).items() if name in names or entry.code in FROM_SAFETENSORS
    }
    formats: dict[str, tuple[DType, tuple[int, ...]]] = {
        name: (dtype or names[name].dtype if name in names else FROM_SAFETENSORS[entry.code], entry.shape)
        for name, entry in stored.items()
    }

    def contents(name: str) -> NDArray[Any]:
        if name not in names:
            return stored[name].read()
        out: NDArray[Any] = np.empty(formats[name][1], dtype=held_as(formats[name][0]))
        master.centre(name, out)
        return out

    write_file(folder / SINGLE, formats, contents, {"format": "pt"})


def _note_dtype(config: Path, dtype: str) -> None:
    data = json.loads(config.read_text())
    for key in ("dtype", "torch_dtype"):
        if key in data or key == "dtype":
            data[key] = dtype
    config.write_text(json.dumps(data, indent=2) + "\n")
