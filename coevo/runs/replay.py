"""Rebuilding the weights from base and journal: the journal is the checkpoint (design section 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevo.errors import CheckFailedError, UserError
from coevo.interfaces import Engine
from coevo.optional import KeepsAnchors, offers
from coevo.records import Json, SeedsUpdate
from coevo.runs.folder import RunFolder
from coevo.runs.journal import History, fold, label, update_of


def restore_engine(engine: Engine, folder: RunFolder, history: History) -> None:
    """Bring a fresh engine to the weights that the journal names, from the newest anchor where there is one.

    Raises:
        CheckFailedError: the engine's base weights, or the rebuilt ones, are not those of the journal.
    """
    if engine.digest() != history.base["digest"]:
        raise CheckFailedError(
            f"run {folder.name!r} began with weights {history.base['digest'][:16]} and the engine has "
            f"{engine.digest()[:16]}; use the same model"
        )
    lines = history.batches
    start = 0
    anchored = offers(engine, KeepsAnchors)
    for index in range(len(lines) - 1, -1, -1):
        anchor = folder.path / "anchors" / f"{lines[index]['digest']}.safetensors"
        if anchored and anchor.exists():
            engine.load_anchor(anchor)
            if engine.digest() == lines[index]["digest"]:
                start = index + 1
                break
    for line in lines[start:]:
        update = update_of(line)
        if update is not None:
            engine.apply(update)
    if engine.digest() != history.digest:
        raise CheckFailedError(
            f"the weights rebuilt for run {folder.name!r} differ from the journal; see: coevo replay {folder.name}"
        )


_DIGITS = 18
"""Of a generation that is asked for."""


def position(history: History, at: str) -> int:
    """How many journal batches `--at` means: a generation's end, `best` (after its batch), or `last`.

    Raises:
        UserError: no such generation, or nothing valid was found.
    """
    if at == "last":
        return len(history.batches)
    if at == "best":
        if history.best is None:
            raise UserError("--at best: the run has found nothing valid yet")
        wanted = (history.best.generation, history.best.batch)
        # The batch that found the best was answered by the weights before its own update.
        found = [i for i, b in enumerate(history.batches) if (b["generation"], b["batch"]) == wanted]
        if not found:
            raise CheckFailedError(f"--at best: the journal has no batch {wanted[1]} of generation {wanted[0]}")
        return found[0]
    generations = [b["generation"] for b in history.batches]
    if not (at.isascii() and at.isdigit() and len(at) <= _DIGITS) or int(at) not in generations:
        last = generations[-1] if generations else "none"
        raise UserError(
            f"--at {at[:60]!r}: expected 'best', 'last' or a generation that is finished (the last is {last})"
        )
    return len(generations) - generations[::-1].index(int(at))


def cut(history: History, batches: int) -> History:
    """The first `batches` batches of a history: where weights and updaters were then."""
    kept = History(base=history.base, digest=history.base["digest"])
    for line in history.batches[:batches]:
        fold(kept, line)
    return kept


@dataclass(frozen=True, slots=True)
class Verified:
    """One batch whose digest was recomputed and agrees."""

    generation: int
    batch: int
    operator: str
    digest: str
    terms: int


def master_of(folder: RunFolder) -> Any:
    """A `coevo.weights.master.Master` with the run's base weights and selection.

    Raises:
        UserError: the run's engine does not adapt, or its base model is gone.
    """
    info = folder.info()
    if "engine" not in info:
        raise CheckFailedError(f"run {folder.name!r} has no run.json that says which tensors it moves; it is damaged")
    engine: Mapping[str, Json] = info["engine"]
    if "selection" not in engine:
        raise UserError(
            f"run {folder.name!r} has no weights to rebuild: its engine left no list of tensors in run.json, "
            "as engines do that adapt a checkpoint"
        )
    from coevo.weights.master import Master
    from coevo.weights.selection import Selection

    try:
        selection = Selection.from_json(engine["selection"])
    except ValueError as error:
        raise CheckFailedError(f"run.json of run {folder.name!r} holds no list of tensors: {error}") from None
    return Master(selection, base_of(folder))


def base_of(folder: RunFolder) -> Path:
    """The model folder that a run began with, where it is now.

    Raises:
        UserError: it is gone.
    """
    from coevo.models.catalogue import resolve

    base = Path(str(folder.info().get("engine", {}).get("base", "")))
    # A stranger's may be too long for a path, or hold what no path can.
    with suppress(OSError, ValueError):
        if base.name and base.is_dir():
            return base
    return Path(resolve(str(folder.config().get("model", ""))))


def replay(folder: RunFolder, master: Any, lines: Sequence[Mapping[str, Json]]) -> Iterator[Verified]:
    """Apply the updates in order and check every digest.

    Raises:
        CheckFailedError: a digest differs; names the batch.
    """
    base = folder.journal.history().base
    digest = master.digest()
    if digest != base["digest"]:
        raise CheckFailedError(f"the base weights have digest {digest[:16]}, the journal says {base['digest'][:16]}")
    for line in lines:
        update = update_of(line)
        terms = 0
        if isinstance(update, SeedsUpdate) and update.terms:
            try:
                master.apply(update.terms)
            except ValueError as error:
                raise CheckFailedError(f"{label(line)}: {error}") from None
            digest, terms = master.digest(), len(update.terms)
        elif update is not None and not isinstance(update, SeedsUpdate):
            raise UserError(
                f"{label(line)}: an update of kind {line['update']['kind']!r} cannot be replayed from a journal"
            )
        if digest != line["digest"]:
            raise CheckFailedError(f"{label(line)}: replay gives {digest[:16]}, the journal says {line['digest'][:16]}")
        yield Verified(line["generation"], line["batch"], line["operator"], digest, terms)
