"""What a run is and what came of it, as blocks of its report."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from coevo.errors import CheckFailedError
from coevo.files import read_own
from coevo.records import Json
from coevo.report.html import Block, Code, Facts, Fold, Note, Tiles
from coevo.report.numbers import ABSENT, count, duration, number, objective, percent
from coevo.report.tables import Table
from coevo.report.text import pair, worth
from coevo.runs.folder import RunFolder

LONGEST_CODE = 100_000
"""Characters of an answer that are shown; the file has the rest."""


def told(value: Any) -> str:
    """A number, a truth or a text for a reader; nothing of it is markup."""
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value) if math.isfinite(value) else str(value)
    return str(value)


def status_note(summary: Mapping[str, Json], batches: int) -> list[Block]:
    """What a reader must know before the numbers: the run is going, failed, interrupted or empty."""
    notes: list[Block] = []
    status, where = str(summary["status"]), RunFolder(Path(str(summary["path"]))).address
    if status == "running":
        notes.append(Note("The run is going on. This page shows what was committed when it was made."))
    if status in ("failed", "interrupted"):
        why = f": {summary['message']}" if summary["message"] else ""
        past = "failed" if status == "failed" else "was interrupted"
        notes.append(Note(f"The run {past}{why}. Go on with: coevo resume {where}", "bad"))
    if not batches:
        notes.append(Note("No batch was committed yet, so there is nothing to plot."))
    return notes


def result(summary: Mapping[str, Json]) -> list[Block]:
    """The numbers that matter."""
    best: Mapping[str, Json] | None = summary["best"]
    answers = sum(summary["statuses"].values())
    tiles = [
        ("best objective", ABSENT if best is None else objective(best["objective"]), "; ".join(worth(summary))),
        ("valid answers", percent(summary["valid_rate"]) if answers else ABSENT, f"of {answers:,}"),
        ("weight updates", told(summary["updates"]), _zero(summary)),
        ("generations", told(summary["generations"]), f"of {told(summary['generations_planned'])}"),
        ("model calls", told(summary["calls"]), f"{count(summary['tokens'], 'token')}"),
        ("time", duration(summary["seconds"]), "in batches and probes"),
    ]
    return [Tiles(tiles), *([Note("No valid answer was found.", "bad")] if answers and best is None else [])]


def best_answer(summary: Mapping[str, Json], folder: RunFolder) -> list[Block]:
    """Where the best answer was found, and the answer."""
    best: Mapping[str, Json] | None = summary["best"]
    if best is None:
        return []
    where = f"Found in generation {best['generation']}, batch {best['batch']}, rollout {best['rollout']}."
    return [Note(where, "quiet"), Code(*_best_file(Path(str(best["path"])), folder))]


def learning(summary: Mapping[str, Json]) -> list[Block]:
    """What `summary["learning"]` says, if it says something: its verdict, then its numbers."""
    said = cast(Mapping[str, Json], summary.get("learning") or {})
    if not said.get("verdict"):
        return []
    rows = [(_name(key), told(value)) for key, value in _flat(said) if key != "verdict" and value is not None]
    return [Note(str(said["verdict"])), *([Fold("The numbers behind it", [Facts(rows)])] if rows else [])]


def what_ran(summary: Mapping[str, Json]) -> list[Block]:
    """Names, seed, state and digests."""
    s = summary
    why = f" ({s['reason']})" if s["reason"] and s["reason"] != s["status"] else ""
    base, now = str(s["base_digest"]), str(s["weights_digest"])
    rows = [
        ("status", f"{s['status']}{why}"),
        ("task", told(s["task"])),
        ("parameter updater", told(s["param"])),
        ("context updater", told(s["context"])),
        ("model", f"{told(s['model'])} on engine {told(s['engine'])}"),
        ("seed", str(s["seed"])),
        ("objective", "; ".join([told(s["direction"]), *(_named(s, kind) for kind in ("reference", "baseline"))])),
        ("tokens", f"{told(s['prompt_tokens'])} of prompts, {told(s['completion_tokens'])} of completions"),
        ("base weights", base or "not loaded yet"),
        ("weights now", now if now != base else "did not move" if base else "not loaded yet"),
        ("folder", str(s["path"])),
    ]
    reasons: Sequence[Mapping[str, Json]] = s["zero_updates"]
    zero = [[told(z["generation"]), told(z["batch"]), str(z["reason"])] for z in reasons]
    caption = "Batches that did not move the weights, and why"
    heads = ("generation", "batch", "reason")
    return [Facts(rows), *([Fold(caption, [Table(caption, heads, zero, words=("reason",))])] if zero else [])]


def setting(folder: RunFolder, info: Mapping[str, Json]) -> list[Block]:
    """Versions, machine, which tensors take part, and the resolved configuration."""
    versions: Mapping[str, Json] = info.get("versions") or {}
    rows = [(str(name), str(value)) for name, value in versions.items()]
    rows += [(name, str(info[name])) for name in ("python", "machine") if info.get(name)]
    rows += [(_name(key), told(value)) for key, value in _flat(info.get("describe") or {})]
    engine: Mapping[str, Json] = info.get("engine") or {}
    selection: Mapping[str, Json] = engine.get("selection") or {}
    tensors: Sequence[Mapping[str, Json]] = selection.get("tensors") or []
    if tensors:
        weights = sum(math.prod(tensor["shape"]) for tensor in tensors)
        rows.append(("weights that take part", f"{weights:,} in {count(len(tensors), 'tensor')}"))
    config = read_own(folder.path / "config.toml").decode(errors="replace")
    return [*([Facts(rows)] if rows else []), Fold("config.toml", [Code("config.toml", config)])]


def _best_file(path: Path, folder: RunFolder) -> tuple[str, str]:
    """The name and text of the file with the best answer."""
    if not path.exists():
        return path.name, f"{str(path)!r} cannot be read: it is gone"
    try:
        own = path.name == "best.json"
        text = str(folder.best().get("answer", "")) if own else read_own(path).decode(errors="replace")
    except CheckFailedError as error:
        return path.name, str(error)
    shown = str(path.relative_to(folder.path)) if path.is_relative_to(folder.path) else path.name
    if len(text) > LONGEST_CODE:
        return f"{shown}, its first {LONGEST_CODE:,} characters", text[:LONGEST_CODE]
    return shown, text


def _named(summary: Mapping[str, Json], kind: str) -> str:
    return f"{kind} {'none' if summary[kind] is None else pair(summary[kind])}"


def _zero(summary: Mapping[str, Json]) -> str:
    zero = len(summary["zero_updates"])
    return f"{count(zero, 'zero update')} besides" if zero else ""


def _name(key: str) -> str:
    return key.replace("_", " ")


def _flat(data: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values, names of nested ones joined; lists are tables and told elsewhere."""
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(cast(Mapping[str, Json], value), f"{prefix}{key} ")
        elif not isinstance(value, list | tuple):
            yield prefix + key, value
