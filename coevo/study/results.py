"""The numbers of a study, derived from the folders of its runs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from coevo.errors import CoevoError
from coevo.folder import RunFolder
from coevo.learning import Judge, Point, points
from coevo.records import Json
from coevo.study.plan import PlannedRun, Study
from coevo.study.standing import is_there
from coevo.summary import summarize

AT_END = ("valid_rate", "better_rate", "score")
"""Of the last probe: what the centre answers when the run is over."""
OF_WEIGHTS = ("variance_ratio", "moved", "cosine", "cosine_run", "drift", "drifted")
"""What the run says of its updates; see `coevo.verdict.learning`."""
NUMBERS = (*AT_END, "best", "search_valid_rate", "calls", "tokens", "seconds", "updates", "zero_updates", *OF_WEIGHTS)
FINISHED, FAILED, WAITING = "finished", "failed", "waiting"


@dataclass(frozen=True, slots=True)
class Reading:
    """One run as its folder tells it.

    Attributes:
        status: `finished`, `failed`, `interrupted`, `running`, or `waiting` before it began.
        message: why it failed, else empty.
        numbers: those of NUMBERS; None is what cannot be told.
    """

    run: PlannedRun
    status: str
    message: str = ""
    numbers: Mapping[str, float | None] = field(default_factory=lambda: dict.fromkeys(NUMBERS))
    batches: Sequence[Point] = ()
    probes: Sequence[Point] = ()
    judge: Judge = field(default_factory=Judge)

    @property
    def finished(self) -> bool:
        """Whether it came to its planned end; only such runs are compared."""
        return self.status == FINISHED


def read(run: PlannedRun, failure: str = "") -> Reading:
    """Read a run's folder.

    Args:
        run: which.
        failure: why it failed in this process; its journal may have had no time to say so.

    A run that is damaged has failed, and says of what.
    """
    if not is_there(run):
        return Reading(run, FAILED if failure else WAITING, failure)
    try:
        return _read(run, RunFolder(run.path), failure)
    except CoevoError as error:
        return Reading(run, FAILED, failure or " ".join(str(error).split()))


def _read(run: PlannedRun, folder: RunFolder, failure: str) -> Reading:
    summary = summarize(folder)
    status = summary["status"]
    if failure:
        status = FAILED
    judge = Judge.of(folder.info())
    batches, probes = points(folder.journal.history().told, judge)
    best = summary["best"]
    numbers: dict[str, float | None] = {
        "valid_rate": None, "better_rate": None, "score": None,
        "best": None if best is None else best["objective"],
        "search_valid_rate": _last_rate(batches),
        "calls": summary["calls"], "tokens": summary["tokens"], "seconds": summary["seconds"],
        "updates": summary["updates"], "zero_updates": len(summary["zero_updates"]),
        **{name: summary["learning"][name] for name in OF_WEIGHTS},
    }  # fmt: skip
    if status == FINISHED and probes:
        # Before its end a run's last probe is of some generation, and says nothing of the end.
        last = probes[-1]
        numbers |= {"valid_rate": last.valid, "better_rate": last.better, "score": last.score}
    message = (failure or summary["message"]) if status == FAILED else ""
    return Reading(run, status, message, numbers, batches, probes, judge)


def _last_rate(batches: Sequence[Point]) -> float | None:
    """Valid share of all answers of the last generation's batches."""
    last = [batch for batch in batches if batch.generation == batches[-1].generation]
    answers = sum(batch.answers for batch in last)
    return sum(batch.valid * batch.answers for batch in last) / answers if answers else None


def comparison(study: Study, readings: Sequence[Reading]) -> dict[str, Json]:
    """What `coevo study --json` prints. Means are over the finished runs of an arm."""
    of_baseline = {r.run.seed: r for r in readings if r.run.arm == study.arms[0]}
    return {
        "study": study.name,
        "file": str(study.file),
        "baseline_arm": study.arms[0],
        "seeds": list(study.seeds),
        "arms": {arm: _arm([r for r in readings if r.run.arm == arm], of_baseline) for arm in study.arms},
        "seconds": round(sum(r.numbers["seconds"] or 0.0 for r in readings), 3),
    }


def _arm(readings: Sequence[Reading], of_baseline: Mapping[int, Reading]) -> dict[str, Json]:
    finished = [reading for reading in readings if reading.finished]
    gains = {r.run.seed: _gain(r, of_baseline[r.run.seed]) for r in readings}
    bests = [best for r in finished if (best := r.numbers["best"]) is not None]
    return {
        **{name: mean([r.numbers[name] for r in finished]) for name in NUMBERS},
        "best_of_seeds": finished[0].judge.best(bests) if finished else None,
        "valid_points": mean(list(gains.values())),
        "finished": len(finished),
        "runs": [
            {
                "seed": r.run.seed,
                "name": r.run.config.name,
                "path": str(r.run.path),
                "status": r.status,
                "message": r.message,
                **r.numbers,
                "valid_points": gains[r.run.seed],
            }
            for r in readings
        ],
    }


def _gain(reading: Reading, baseline: Reading) -> float | None:
    """Points of `valid_rate` above the first arm's run of the same seed."""
    ours, theirs = reading.numbers["valid_rate"], baseline.numbers["valid_rate"]
    return None if ours is None or theirs is None else round(100.0 * (ours - theirs), 6)


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of the numbers among `values`, None of none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
