"""What a run amounts to, derived from its folder alone: `coevo show`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coevo.files import UNFINISHED
from coevo.records import Json, valid_share
from coevo.runs.folder import RunFolder
from coevo.runs.journal import History
from coevo.runs.verdict import learning
from coevo.runs.yardstick import Judge


def status_of(folder: RunFolder, history: History) -> str:
    """`running`, `finished`, `failed`, or `interrupted` (also after a kill)."""
    if folder.is_locked():
        return "running"
    if history.finished:
        return "finished"
    if history.stop is not None and history.stop["reason"] == "failed":
        return "failed"
    return "interrupted"


def _complete(history: History) -> int:
    """How many generations have all their batches."""
    if history.stop is not None and history.stop["reason"] == "generations":
        return history.generation + 1
    if history.finished and history.stop is not None:
        # A budget ended the run before the batch that is named; its generation lacks that batch.
        return int(history.stop.get("generation", history.generation))
    return history.generation


def summarize(
    folder: RunFolder, history: History | None = None, info: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Everything `coevo show --json` prints.

    Args:
        folder: of the run.
        history: what its journal says, where that was read already.
        info: `run.json`, where that was read already.

    Raises:
        CheckFailedError: the journal was changed.
    """
    history = folder.journal.history() if history is None else history
    info = folder.info() if info is None else info
    status = status_of(folder, history)
    complete = _complete(history)
    statuses: Counter[str] = Counter()
    for line in history.batches:
        statuses.update(line["statuses"])
    config = folder.config()
    unbooked = folder.unbooked(history).total
    spent = history.ledger + unbooked
    measured = info.get("task", {})
    return {
        "name": folder.name,
        "path": str(folder.path),
        "status": status,
        "reason": None if history.stop is None else history.stop["reason"],
        "message": "" if history.stop is None else history.stop["message"],
        **{key: config.get(key) for key in ("task", "param", "context", "engine", "model", "seed")},
        "generations": complete,
        "generations_planned": config.get("generations"),
        "batches": len(history.batches),
        "updates": sum(bool(line["update"] and line["update"].get("terms")) for line in history.batches),
        "zero_updates": [
            {"generation": line["generation"], "batch": line["batch"], "reason": line["zero_update"]}
            for line in history.batches
            if line["zero_update"]
        ],
        **{key: measured.get(key) for key in ("direction", "reference", "baseline")},
        "best": _best(folder, history, measured),
        "statuses": dict(sorted(statuses.items())),
        "valid_rate": valid_share(statuses),
        "calls": spent.calls,
        "tokens": spent.tokens,
        "prompt_tokens": spent.prompt_tokens,
        "completion_tokens": spent.completion_tokens,
        "uncommitted": {"calls": unbooked.calls, "tokens": unbooked.tokens},
        "cost": _cost(history),
        "seconds": round(sum(line["time"]["seconds"] for line in history.told), 3),
        "learning": learning(history.told, Judge.of(info), folder.address),
        "base_digest": history.base.get("digest", ""),
        "weights_digest": history.digest,
    }


def _cost(history: History) -> float | None:
    """Money that the engine says all of it cost, None where it says nothing."""
    told = [line["metrics"]["cost"] for line in history.told if "cost" in line["metrics"]]
    return round(sum(told), 6) if told else None


def gap_to(value: float, target: float, direction: str) -> float | None:
    """How much worse than `target` a value is, as a share of it; negative where better, None where it is 0."""
    worse = value - target if direction == "minimize" else target - value
    return worse / abs(target) if target else None


def _best(folder: RunFolder, history: History, measured: Mapping[str, Json]) -> dict[str, Json] | None:
    best = history.best
    if best is None:
        return None
    every = (folder.path / "best").glob("*")
    files = sorted(p for p in every if p.name != "best.json" and not p.name.endswith(UNFINISHED))
    reference, baseline = measured.get("reference"), measured.get("baseline")
    direction = measured.get("direction", "minimize")
    sign = 1.0 if direction == "minimize" else -1.0
    path = files[0] if files else folder.path / "best" / "best.json"
    return {
        "objective": best.objective,
        "return": best.return_,
        "gap": None if reference is None else gap_to(best.objective, reference[1], direction),
        "beats_baseline": None if baseline is None else sign * (best.objective - baseline[1]) < 0.0,
        "rollout": best.rollout,
        "generation": best.generation,
        "batch": best.batch,
        "path": str(path),
        # On splits that the search did not see; none before the run's end.
        "splits": folder.best().get("splits") or {},
    }
