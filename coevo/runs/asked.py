"""`asked.jsonl`: what the batch in progress asks, written before it is asked.

The journal counts what committed batches asked. A kill leaves a batch that is not committed, in which requests were
asked that no line will ever count, since their chunks run again. So each request is noted here first; the file holds
the batch in progress only, and `lost`, what earlier processes asked in vain::

    {"place": "g0003-b01", "lost": [45, 0, 0]}     [calls, prompt tokens, completion tokens]
    {"chunk": 4, "asks": [32, 0, 0]}               at most; tokens only where a budget limits them
    {"chunk": 4, "unanswered": [2, 0, 0]}          of these no rollout tells; written before the chunk is saved

A line is written, not synced: it outlives the process, however that dies. What a power failure takes besides is at
most what chunks in flight had asked.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from coevo.errors import CheckFailedError, RunError
from coevo.files import open_own, read_own, write_atomic
from coevo.loop.services import Unbooked
from coevo.records import Json, Rollout
from coevo.reports import Ledger
from coevo.runs.chunks import ChunkFile, read_chunks
from coevo.runs.forms import loads

_PLACE = re.compile(r"g\d{4,9}-b\d{2,9}(-probe)?", re.ASCII)
_COUNTS = 3


@dataclass(slots=True)
class _Noted:
    """The file's content: sums by chunk."""

    place: str = ""
    lost: Ledger = field(default_factory=Ledger)
    asks: dict[int, Ledger] = field(default_factory=dict[int, Ledger])
    unanswered: dict[int, Ledger] = field(default_factory=dict[int, Ledger])


def _read(path: Path) -> _Noted:
    data, noted = read_own(path), _Noted()
    for number, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
        try:
            line = cast(dict[str, Any], loads(text))
            if number == 1:
                noted.place, noted.lost = _place(line["place"]), _ledger(line["lost"])
                continue
            kind = "asks" if "asks" in line else "unanswered"
            sums, chunk = getattr(noted, kind), int(line["chunk"])
            sums[chunk] = sums.get(chunk, Ledger()) + _ledger(line[kind])
        except (ValueError, KeyError, TypeError, OverflowError):
            raise CheckFailedError(
                f"line {number} of {str(path)!r} is no note of what was asked; the file was changed"
            ) from None
    return noted


def _place(value: Any) -> str:
    """The name of a file in `rollouts/`, which leads nowhere else."""
    if not isinstance(value, str) or (value and not _PLACE.fullmatch(value)):
        raise ValueError(f"no place: {value!r:.60}")
    return value


def _ledger(value: Any) -> Ledger:
    """Three counts."""
    counts = cast("list[Any]", value if isinstance(value, list) else [])
    if len(counts) != _COUNTS or any(type(count) is not int or not 0 <= count < 1 << 63 for count in counts):
        raise ValueError(f"no counts: {value!r:.60}")
    return Ledger(*counts)


def unbooked(path: Path, rollouts: Path, committed: Collection[str]) -> Unbooked:
    """What was asked and is in no line of the journal.

    Args:
        path: of `asked.jsonl`; where there is none, nothing was.
        rollouts: the folder of the chunks.
        committed: places that have their line.

    Raises:
        CheckFailedError: the file was changed.
    """
    noted = _read(path)
    if noted.place in committed:
        return Unbooked(noted.lost)
    kept = read_chunks(rollouts / f"{noted.place}{SUFFIX}") if noted.place else []
    zero = Ledger()
    return Unbooked(
        noted.lost,
        noted.place,
        kept=sum((_answered(chunk) for chunk in kept), zero),
        unanswered=sum((noted.unanswered.get(chunk, zero) for chunk in range(len(kept))), zero),
        in_flight=sum((most for chunk, most in noted.asks.items() if chunk >= len(kept)), zero),
    )


def _answered(chunk: Sequence[Rollout]) -> Ledger:
    return Ledger(
        sum(r.calls for r in chunk), sum(r.prompt_tokens for r in chunk), sum(r.completion_tokens for r in chunk)
    )


SUFFIX = ".jsonl.zst"
"""Of a file of chunks; before it stands the place."""


class AskedChunks(ChunkFile):
    """The chunks of a batch, and the notes of what they ask."""

    def __init__(self, rollouts: Path, place: str, path: Path, unbooked: Unbooked) -> None:
        """Open a batch: what an earlier process had in flight is lost from now on.

        Args:
            rollouts: the folder of the chunks.
            place: of the batch.
            path: of `asked.jsonl`.
            unbooked: what it says, brought up to date.
        """
        unbooked.enter(place)
        self.unanswered = unbooked.unanswered
        lines: list[dict[str, Json]] = [{"place": place, "lost": _numbers(unbooked.lost)}]
        if self.unanswered.calls:
            lines.append({"chunk": 0, "unanswered": _numbers(self.unanswered)})
        write_atomic(path, "".join(json.dumps(line) + "\n" for line in lines))
        super().__init__(rollouts / f"{place}{SUFFIX}")
        self._notes = open_own(path, "ab", 0)

    def asking(self, chunk: int, most: Ledger) -> None:
        """Note what a chunk is about to ask.

        Raises:
            RunError: it cannot be written, and so must not be asked.
        """
        self._note({"chunk": chunk, "asks": _numbers(most)})

    def save(self, rollouts: Sequence[Rollout], unanswered: Ledger) -> None:
        """Save a chunk, and what it asked that none of its rollouts tells."""
        if unanswered.calls:
            self._note({"chunk": rollouts[0].provenance.chunk, "unanswered": _numbers(unanswered)})
            os.fsync(self._notes.fileno())
        self.append(rollouts)

    def _note(self, line: dict[str, Json]) -> None:
        text = (json.dumps(line) + "\n").encode()
        try:
            if self._notes.closed or self._notes.write(text) < len(text):
                raise OSError("no room for a whole line")
        except OSError as error:
            self._notes.close()  # nothing comes after a torn line
            raise RunError(f"writing failed: {error}") from error

    def __exit__(self, *error: object) -> None:
        self._notes.close()
        super().__exit__(*error)


def _numbers(ledger: Ledger) -> list[int]:
    return [ledger.calls, ledger.prompt_tokens, ledger.completion_tokens]
