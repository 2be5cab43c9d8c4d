"""`journal.jsonl`: append-only, fsynced, one line a batch. The line is the commit point of a batch.

Everything a line names is on disk before it. Base weights plus the updates in the journal are the
checkpoint: they rebuild the parameters to the last bit. Each line carries `check`, a sha256 over the rest
of it except `time`, so that a changed number is noticed even where its effect rounds away, and `previous`, the
`check` of the line before it, so that a missing one is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from coevo.errors import CheckFailedError
from coevo.files import open_own, read_own
from coevo.records import DenseUpdate, GradientUpdate, Json, SeedsUpdate, Update
from coevo.reports import BatchReport, Best, Ledger
from coevo.runs.codec import best_from_json, dumps, report_from_json
from coevo.runs.forms import LINE, check, loads

FORMAT = 1
UPDATE_KINDS: dict[str, type[SeedsUpdate | GradientUpdate | DenseUpdate]] = {
    "seeds": SeedsUpdate,
    "gradient": GradientUpdate,
    "dense": DenseUpdate,
}


def update_to_json(update: Update | None) -> dict[str, Json] | None:
    """An update tagged with its kind; seeds as 16 hex digits, coefficients as the exact numbers applied."""
    if update is None:
        return None
    kind = next(k for k, cls in UPDATE_KINDS.items() if isinstance(update, cls))
    data: dict[str, Json] = {"kind": kind, **dataclasses.asdict(update)}
    if isinstance(update, SeedsUpdate):
        data["terms"] = [[f"{seed:016x}", coefficient] for seed, coefficient in update.terms]
    return data


def update_from_json(data: Mapping[str, Json] | None) -> Update | None:
    """The inverse of `update_to_json`."""
    if data is None:
        return None
    fields: dict[str, Any] = {
        k: tuple(cast(list[Any], v)) if isinstance(v, list) else v for k, v in data.items() if k != "kind"
    }
    if data["kind"] == "seeds":
        fields["terms"] = tuple((int(seed, 16), float(c)) for seed, c in data["terms"])
    return UPDATE_KINDS[data["kind"]](**fields)


def update_of(line: Mapping[str, Json]) -> Update | None:
    """The update of a batch's line.

    Raises:
        CheckFailedError: there is no such update.
    """
    try:
        return update_from_json(line["update"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckFailedError(f"{label(line)}: its update is none ({error}); the journal is damaged") from None


def check_of(line: Mapping[str, Json]) -> str:
    """sha256 of the line's canonical JSON without `time` and `check`."""
    kept = {k: v for k, v in line.items() if k not in ("time", "check")}
    text = json.dumps(kept, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _parse(text: bytes) -> dict[str, Json] | None:
    """A line as an object, None if it is none or holds what JSON has not (NaN)."""
    try:
        line = loads(text)
    except ValueError:
        return None
    return cast(dict[str, Json], line) if isinstance(line, dict) else None


def label(line: Mapping[str, Json]) -> str:
    """How a batch is named to the reader."""
    operator = f" ({line['operator']})" if line.get("operator") else ""
    return f"batch {line.get('batch')} of generation {line.get('generation')}{operator}"


def _what(line: Mapping[str, Json]) -> str:
    """How any line is named to the reader."""
    kind = line.get("kind")
    if kind in ("batch", "probe") and "batch" in line and "generation" in line:
        return label(line)
    return f"the {kind!r} line" if isinstance(kind, str) else "a line"


@dataclass(slots=True)
class History:
    """What the journal says a run has done: where a resumed run goes on."""

    generation: int = 0
    batch: int = 0
    adapted: int = 0
    states: Mapping[str, Json] = field(default_factory=dict[str, Json])
    ledger: Ledger = field(default_factory=Ledger)
    best: Best | None = None
    digest: str = ""
    base: Mapping[str, Json] = field(default_factory=dict[str, Json])
    batches: list[dict[str, Json]] = field(default_factory=list[dict[str, Json]])
    probes: list[dict[str, Json]] = field(default_factory=list[dict[str, Json]])
    stop: Mapping[str, Json] | None = None

    def reports(self) -> list[BatchReport]:
        """Reports of the generation in progress, for a resumed run to go on with."""
        return [report_from_json(line) for line in self.batches if line["generation"] == self.generation]

    @property
    def told(self) -> list[dict[str, Json]]:
        """Batches and probes in the order in which they happened."""
        lines = [*self.batches, *self.probes]
        return sorted(lines, key=lambda line: (line["generation"], line["batch"], line["kind"] == "batch"))

    @property
    def probed(self) -> set[tuple[int, int]]:
        """Places (generation, batch) that have their probe."""
        return {(line["generation"], line["batch"]) for line in self.probes}

    @property
    def finished(self) -> bool:
        """Whether the run came to its planned end."""
        return self.stop is not None and self.stop["reason"] in ("generations", "calls", "tokens")


class Journal:
    """The append-only file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: str | None = None

    def append(self, line: Mapping[str, Json]) -> None:
        """Write one line, on disk when this returns."""
        chained = {**line, "previous": self._last_check()}
        whole = {**chained, "check": check_of(chained)}
        text = dumps(whole)
        with open_own(self.path, "ab") as file:
            file.write((text + "\n").encode())
            file.flush()
            os.fsync(file.fileno())
        if line["kind"] != "stop":
            self._last = str(whole["check"])

    def _last_check(self) -> str:
        # Stop lines are not chained: a run that was interrupted has the chain of one that was not.
        if self._last is None:
            kept = [line for line in self.lines() if line["kind"] != "stop"]
            self._last = str(kept[-1]["check"]) if kept else ""
        return self._last

    def repair(self) -> None:
        """Cut a torn last line (a kill in mid-write). Its batch is not committed and runs again."""
        data = read_own(self.path)
        end = data.rfind(b"\n") + 1
        self._last = None
        if end < len(data):
            with open_own(self.path, "r+b") as file:
                file.truncate(end)
                os.fsync(file.fileno())

    def lines(self) -> Iterator[dict[str, Json]]:
        """Verified lines in order; a torn last line is left out.

        Raises:
            CheckFailedError: a line that is no JSON, differs from its own checksum, or does not look like a line of
                coevo's; names the batch, or the key. Or no file.
        """
        data = read_own(self.path)
        whole = data[: data.rfind(b"\n") + 1]
        previous = ""
        for number, text in enumerate(whole.splitlines(), 1):
            where = f"line {number} of {str(self.path)!r}"
            line = _parse(text)
            if line is None:
                raise CheckFailedError(f"{where} is no JSON; the journal is damaged")
            what = _what(line)
            if line.get("check") != check_of(line):
                raise CheckFailedError(f"{what} ({where}) differs from its checksum; the journal was changed")
            if line.get("previous") != previous:
                raise CheckFailedError(f"{what} ({where}) does not follow the line before it; lines are missing")
            if not isinstance(line.get("kind"), str):
                raise CheckFailedError(f"{what} ({where}) says nothing of its kind; the journal was changed")
            previous = previous if line["kind"] == "stop" else line["check"]
            yield line

    def history(self) -> History:
        """Fold the lines into where the run is.

        Raises:
            CheckFailedError: a line is damaged, or does not look like one of coevo's; names the batch, or the key.
        """
        history, damage = self.sound()
        if damage is not None:
            raise damage
        return history

    def sound(self) -> tuple[History, CheckFailedError | None]:
        """What the lines before the first damaged one say, and what is damaged, if anything is."""
        history = History()
        try:
            for number, line in enumerate(self.lines(), 1):
                check(line, LINE, f"line {number} of {str(self.path)!r}")
                _fold(history, line)
        except CheckFailedError as error:
            return history, error
        return history, None


def _fold(history: History, line: dict[str, Json]) -> None:
    if line["kind"] == "base":
        history.base = line
        history.digest = line["digest"]
    elif line["kind"] == "stop":
        history.stop = line
    elif line["kind"] == "probe":
        history.probes.append(line)
        history.ledger = Ledger(**line["ledger"])
    elif line["kind"] == "batch":
        fold(history, line)


def fold(history: History, line: dict[str, Json]) -> None:
    """Go on by a committed batch."""
    history.batches.append(line)
    history.stop = None
    history.generation, history.batch = line["generation"], line["batch"] + 1
    history.adapted += bool(line["adapt"])
    history.states = line["states"]
    history.ledger = Ledger(**line["ledger"])
    history.best = best_from_json(line["best"])
    history.digest = line["digest"]
