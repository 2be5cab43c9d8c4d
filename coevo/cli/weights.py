"""What `coevo replay` and `coevo export` do: weights from base and journal, without torch."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from coevo.errors import RunError, UserError
from coevo.folder import RunFolder, why_not
from coevo.journal import History
from coevo.records import Json
from coevo.registry import did_you_mean
from coevo.replay import base_of, master_of, position, replay

DTYPES = ("float32", "bfloat16", "float16")
NOTE = "coevo-export.json"
"""The file in an exported folder that says which run's weights these are."""


def silent(line: str) -> None:
    """Say nothing."""


def verified(folder: RunFolder, at: str, say: Callable[[str], None]) -> dict[str, Json]:
    """Replay a run up to `at`, a line for every batch.

    Raises:
        CheckFailedError: the first difference; names the batch.
        UserError: the run has no weights, or not that generation.
    """
    with rebuilt(folder, at, say) as (_, found):
        return found


@contextmanager
def rebuilt(folder: RunFolder, at: str, say: Callable[[str], None]) -> Generator[tuple[Any, dict[str, Json]]]:
    """The master that a run had at `at`, every digest on the way checked."""
    history = started(folder)
    lines = history.batches[: position(history, at)]
    master = master_of(folder)
    try:
        digest = str(history.base["digest"])
        say(f"run {folder.name}: {len(lines)} {'batch' if len(lines) == 1 else 'batches'} from weights {digest[:16]}")
        for done in replay(folder, master, lines):
            digest = done.digest
            operator = f" ({done.operator})" if done.operator else ""
            step = f"{done.terms} terms" if done.terms else "no step"
            say(f"generation {done.generation}, batch {done.batch}{operator}: {step}, weights {digest[:16]}, verified")
        yield (
            master,
            {
                "run": folder.name,
                "at": at,
                "batches": len(lines),
                "updates": sum(bool(line["update"] and line["update"].get("terms")) for line in lines),
                "base_digest": history.base["digest"],
                "weights_digest": digest,
                "verified": True,
            },
        )
    finally:
        getattr(master, "close", lambda: None)()


def started(folder: RunFolder) -> History:
    """The history of a run whose weights were loaded at least once.

    Raises:
        UserError: it never got so far.
    """
    history = folder.journal.history()
    if not history.base:
        raise UserError(
            f"run {folder.name!r} ended before its weights were loaded; start it with: coevo resume {folder.address}"
        )
    return history


def export_run(folder: RunFolder, out: Path, dtype: str | None, at: str) -> dict[str, Json]:
    """Write the weights of a run as a model folder; nothing is left at `out` unless all of it is.

    Raises:
        UserError: `out` is taken or cannot be made, or `dtype` is unknown.
        CheckFailedError: the rebuilt weights are not those of the journal.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UserError(f"--dtype got {dtype!r}{did_you_mean(dtype, DTYPES)}")
    check_out(out)
    with rebuilt(folder, at, silent) as (master, found), scratch(out) as temporary:
        from coevo.cli.checkpoint import write_model

        written = write_model(master, base_of(folder), temporary, cast(Any, dtype))
        record = {**found, "dtype": written, "tensors": len(master.selection.tensors)}
        (temporary / NOTE).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        # A rename replaces an empty folder and nothing else.
        temporary.replace(out)
    return {**record, "out": str(out)}


def check_out(out: Path) -> None:
    """Refuse a place where the folder cannot be made.

    Raises:
        UserError: it is a file, holds something, or is below a file or a folder that cannot be written.
    """
    try:
        taken = out.is_dir() and any(out.iterdir())
    except OSError as error:
        raise UserError(f"--out {str(out)!r} cannot be read: {error.strerror}") from None
    if taken:
        raise UserError(f"--out {str(out)!r} is not empty; give a folder that does not exist")
    if os.path.lexists(out) and not out.is_dir():
        raise UserError(f"--out {str(out)!r} is a file; give a folder that does not exist")
    if reason := why_not(out):
        raise UserError(f"--out {str(out)!r} cannot be made: {reason}")


@contextmanager
def scratch(out: Path) -> Generator[Path]:
    """A temporary folder beside `out`, gone at the end unless it was renamed."""
    try:
        out.absolute().parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    except OSError as error:
        raise UserError(f"--out {str(out)!r} cannot be made: {error.strerror}") from None
    temporary.chmod(0o755)  # mkdtemp's is for the owner alone; a model folder is an ordinary one
    try:
        yield temporary
    except OSError as error:
        raise RunError(f"export to {str(out)!r} failed: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
