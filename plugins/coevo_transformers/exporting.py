"""Writing the centre as a model folder that transformers loads."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

from coevo.errors import UserError
from coevo.weights.dtypes import DTYPES, DType
from coevo.weights.master import Master
from coevo.weights.stored import INDEX, open_checkpoint, write_file

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
    stored = open_checkpoint(base)
    specs = {spec.name: spec for spec in master.selection.tensors}
    aliases = {alias: spec.name for spec in master.selection.tensors for alias in spec.aliases}
    formats: dict[str, tuple[DType, tuple[int, ...]]] = {}
    extra: dict[str, Any] = {}
    for name, entry in stored.items():
        spec = specs.get(aliases.get(name, name))
        if spec is not None:
            formats[name] = (dtype or spec.dtype, spec.shape)
        elif entry.code in ("F32", "BF16", "F16"):
            extra[name] = entry
            formats[name] = ({"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[entry.code], entry.shape)  # type: ignore[assignment]

    def contents(name: str) -> Any:
        import numpy as np

        from coevo.weights.dtypes import held_as

        if name in extra:
            return extra[name].read()
        out = np.empty(formats[name][1], dtype=held_as(formats[name][0]))
        master.centre(aliases.get(name, name), cast(Any, out))
        return out

    write_file(folder / "model.safetensors", formats, contents, {"format": "pt"})


def _note_dtype(config: Path, dtype: str) -> None:
    data = json.loads(config.read_text())
    for key in ("dtype", "torch_dtype"):
        if key in data or key == "dtype":
            data[key] = dtype
    config.write_text(json.dumps(data, indent=2) + "\n")
