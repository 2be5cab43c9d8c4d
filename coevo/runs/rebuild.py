"""Weights of a run from base and journal, without torch: what `coevo replay` and `coevo export` do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coevo.errors import UserError
from coevo.records import Json
from coevo.runs.folder import RunFolder
from coevo.runs.journal import History
from coevo.runs.replay import base_of, master_of, position, replay


def silent(line: str) -> None:
    """Say nothing."""


def verified(folder: RunFolder, at: str, say: Callable[[str], None]) -> dict[str, Json]:
    """Replay a run up to `at`, a line for every batch.

    Raises:
        CheckFailedError: the first difference; names the batch.
        UserError: the run has no weights, or not that generation.
    """
    return rebuilt(folder, at, say)[1]


def rebuilt(folder: RunFolder, at: str, say: Callable[[str], None]) -> tuple[Any, dict[str, Json]]:
    """The master that a run had at `at`, every digest on the way checked, and what there is to say of it."""
    history = started(folder)
    lines = history.batches[: position(history, at)]
    master, digest = master_of(folder), str(history.base["digest"])
    say(f"run {folder.name}: {len(lines)} {'batch' if len(lines) == 1 else 'batches'} from weights {digest[:16]}")
    for done in replay(folder, master, lines):
        digest = done.digest
        operator = f" ({done.operator})" if done.operator else ""
        step = f"{done.terms} terms" if done.terms else "no step"
        say(f"generation {done.generation}, batch {done.batch}{operator}: {step}, weights {digest[:16]}, verified")
    found: dict[str, Json] = {
        "run": folder.name,
        "at": at,
        "batches": len(lines),
        "updates": sum(bool(line["update"] and line["update"].get("terms")) for line in lines),
        "base_digest": history.base["digest"],
        "weights_digest": digest,
        "verified": True,
    }
    return master, found


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
    from coevo.models.export import check_target, export_model

    check_target(out, dtype)
    master, found = rebuilt(folder, at, silent)
    record = export_model(master, base_of(folder), out, dtype, found)
    return {**record, "out": str(out)}
