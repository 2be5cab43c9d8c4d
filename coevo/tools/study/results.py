"""The numbers of a run, derived from its folder alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from coevo.errors import CheckFailedError, CoevoError
from coevo.records import Json
from coevo.runs import holdout
from coevo.runs.chunks import count_rollouts
from coevo.runs.folder import RunFolder
from coevo.runs.journal import History
from coevo.runs.summary import gap_to, summarize
from coevo.runs.yardstick import Judge, Point, points
from coevo.tools.study.frame import Subject

AT_END = ("valid_rate", "better_rate", "score")
"""Of the last probe: what the centre answers when the run is over."""
OF_WEIGHTS = ("variance_ratio", "moved", "cosine", "cosine_run", "drift", "drifted")
"""What the run says of its updates; see `coevo.runs.verdict.learning`."""
HELD_OUT = tuple(name for split in holdout.SPLITS for name in (split, f"{split}_gap"))
"""Of the best program, on splits that the search did not see."""
NUMBERS = (
    *AT_END, "best", "gap", *HELD_OUT, "run_valid_rate", "search_valid_rate", "calls", "tokens", "seconds", "updates",
    "zero_updates", *OF_WEIGHTS,
)  # fmt: skip
FINISHED, FAILED, WAITING, DAMAGED = "finished", "failed", "waiting", "damaged"

References: TypeAlias = Mapping[str, tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Reading:
    """One run as its folder tells it.

    Attributes:
        status: `finished`, `failed`, `interrupted`, `running`, `damaged`, or `waiting` before it began.
        message: why it failed or what is damaged, else empty.
        numbers: those of NUMBERS; None is what cannot be told. Gaps and rates are shares.
        references: split → name and value of what its gap is measured to.
        cut_off: calls of batches that a kill cut off, in none of the numbers.
    """

    run: Subject
    status: str
    message: str = ""
    numbers: Mapping[str, float | None] = field(default_factory=lambda: dict.fromkeys(NUMBERS))
    batches: Sequence[Point] = ()
    probes: Sequence[Point] = ()
    judge: Judge = field(default_factory=Judge)
    references: References = field(default_factory=dict[str, tuple[str, float]])
    cut_off: int = 0

    @property
    def finished(self) -> bool:
        """Whether it came to its planned end; only such runs are compared."""
        return self.status == FINISHED


def read(run: Subject, failure: str = "") -> Reading:
    """Read a run's folder.

    Args:
        run: which.
        failure: why it failed in this process; its journal may have had no time to say so.

    Of a run that is damaged it is what its journal says before the damage.
    """
    if not run.begun:
        return Reading(run, FAILED if failure else WAITING, failure)
    folder, info, damage = RunFolder(run.path), dict[str, Json](), ""
    history, broken = folder.journal.sound()
    try:
        info = folder.info()
    except CheckFailedError as error:
        damage = str(error)
    damage = " ".join((str(broken) if broken else damage).split())
    try:
        return _read(run, folder, history, info, failure, damage)
    except CoevoError as error:
        return Reading(run, FAILED if failure else DAMAGED, failure or " ".join(str(error).split()))


def _read(
    run: Subject, folder: RunFolder, history: History, info: Mapping[str, Json], failure: str, damage: str
) -> Reading:
    summary = summarize(folder, history, info)
    status = FAILED if failure else DAMAGED if damage else summary["status"]
    judge, references = Judge.of(info), _references(info)
    batches, probes = points(history.told, judge)
    best = summary["best"]
    numbers: dict[str, float | None] = {
        "valid_rate": None, "better_rate": None, "score": None,
        "best": None if best is None else best["objective"],
        "gap": None if best is None else best["gap"],
        **dict.fromkeys(HELD_OUT), **_held_out({} if best is None or damage else best["splits"], references, judge),
        "run_valid_rate": summary["valid_rate"],
        "search_valid_rate": _last_rate(batches),
        # What the results are made of: that a run was killed is no property of its method.
        **{cost: summary[cost] - summary["uncommitted"][cost] for cost in ("calls", "tokens")},
        "seconds": summary["seconds"],
        "updates": summary["updates"], "zero_updates": len(summary["zero_updates"]),
        **{name: summary["learning"][name] for name in OF_WEIGHTS},
    }  # fmt: skip
    if status == FINISHED and probes:
        # Before its end a run's last probe is of some generation, and says nothing of the end.
        last = probes[-1]
        numbers |= {"valid_rate": last.valid, "better_rate": last.better, "score": last.score}
    message = {FAILED: failure or summary["message"], DAMAGED: damage}.get(status, "")
    cut_off = summary["uncommitted"]["calls"] if status != "running" else 0
    return Reading(
        run=run,
        status=status,
        message=message,
        numbers=numbers,
        batches=batches,
        probes=probes,
        judge=judge,
        references=references,
        cut_off=cut_off,
    )


def whole(reading: Reading) -> Reading:
    """`reading`, as damaged where rollouts are missing that the journal counts. The numbers are the journal's."""
    if reading.status == DAMAGED or not reading.run.begun:
        return reading
    folder = RunFolder(reading.run.path)
    try:
        for line in folder.journal.history().told:
            path = folder.chunk_file(line["generation"], line["batch"], line["kind"] == "probe")
            held, wanted = count_rollouts(path), sum(line["statuses"].values())
            if held != wanted:
                damage = f"{str(path)!r} holds {held:,} whole rollouts of the {wanted:,} that the journal counts"
                return replace(reading, status=DAMAGED, message=damage)
    except CheckFailedError as error:
        return replace(reading, status=DAMAGED, message=str(error))
    return reading


def _last_rate(batches: Sequence[Point]) -> float | None:
    """Valid share of all answers of the last generation's batches."""
    last = [batch for batch in batches if batch.generation == batches[-1].generation]
    answers = sum(batch.answers for batch in last)
    return sum(batch.valid * batch.answers for batch in last) / answers if answers else None


def _references(info: Mapping[str, Json]) -> References:
    task: Mapping[str, Json] = info.get("task", {})
    found: dict[str, Json] = {"search": task.get("reference"), **task.get("references", {})}
    return {split: (str(pair[0]), float(pair[1])) for split, pair in found.items() if pair}


def _held_out(splits: Mapping[str, Json], references: References, judge: Judge) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for split, verdict in splits.items():
        objective = verdict.get("objective")
        if split in holdout.SPLITS and objective is not None:
            found[split] = objective
            if split in references:
                found[f"{split}_gap"] = gap_to(objective, references[split][1], judge.direction)
    return found
