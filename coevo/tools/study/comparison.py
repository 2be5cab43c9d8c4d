"""Arms against arms: what `coevo study --json` and `coevo compare --json` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from coevo.records import Json
from coevo.tools.study.frame import Frame
from coevo.tools.study.results import NUMBERS, Reading, References

CONFIDENCE = 0.95
DRAWS = 20_000
"""Resamples; with ten seeds the ends of an interval repeat to about a hundredth of its width."""
PAIRED = ("best", "test", "run_valid_rate")
"""Numbers that are also compared with the first arm's, seed by seed."""


def comparison(frame: Frame, readings: Sequence[Reading]) -> dict[str, Json]:
    """Means, spreads and intervals are over the finished runs of an arm.

    Where runs are compared that no study made, an arm that has none finished is compared by what it has so far.

    With problems or budgets there are `cells`, each with its `arms`; else there are just the `arms`.
    """
    cells = [
        {"problem": cell.problem, "budget": cell.budget, **_cell(frame, [r for r in readings if r.run.cell == cell])}
        for cell in frame.cells
    ]
    whole = len(cells) == 1 and not frame.cells[0].parts
    return {
        "study": frame.name,
        "file": frame.source,
        "baseline_arm": frame.arms[0],
        "seeds": list(frame.seeds),
        **({key: cells[0][key] for key in ("references", "arms")} if whole else {"cells": cells}),
        "calls": round(_total(readings, "calls")),
        "tokens": round(_total(readings, "tokens")),
        "seconds": round(_total(readings, "seconds"), 3),
        # A study that was killed ends as one that was not.
        **({} if frame.source else {"cut_off_calls": sum(reading.cut_off for reading in readings)}),
    }


def _total(readings: Sequence[Reading], name: str) -> float:
    """What all runs have spent, finished or not, but for what was cut off."""
    return sum(reading.numbers[name] or 0.0 for reading in readings)


def cells_of(result: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The cells of a comparison, also where it has no axes."""
    return result.get("cells", [{"problem": "", "budget": "", **result}])


def runs_of(result: Mapping[str, Json]) -> list[dict[str, Json]]:
    """The runs of all arms of all cells."""
    return [run for cell in cells_of(result) for arm in cell["arms"].values() for run in arm["runs"]]


def _cell(frame: Frame, readings: Sequence[Reading]) -> dict[str, Json]:
    first = {r.run.seed: r for r in readings if r.run.arm == frame.arms[0]}
    known = [reading.references for reading in readings if reading.references]
    # Those of other instances would be another measure.
    references: References = known[0] if known and all(each == known[0] for each in known) else {}
    arms = {arm: [r for r in readings if r.run.arm == arm] for arm in frame.arms}
    return {
        "references": {split: list(pair) for split, pair in references.items()},
        "arms": {arm: _arm(of_arm, first, so_far=not frame.source) for arm, of_arm in arms.items() if of_arm},
    }


def _arm(readings: Sequence[Reading], first: Mapping[int, Reading], *, so_far: bool) -> dict[str, Json]:
    finished = [reading for reading in readings if reading.finished]
    so_far = so_far and not finished
    counted = readings if so_far else finished
    estimates = {name: estimate([r.numbers[name] for r in counted]) for name in NUMBERS}
    gains = {r.run.seed: _gain(r, first.get(r.run.seed)) for r in readings}
    bests = [best for r in counted if (best := r.numbers["best"]) is not None]
    return {
        **{name: found.mean for name, found in estimates.items()},
        "spread": {name: found.spread for name, found in estimates.items()},
        "interval": {name: found.interval for name, found in estimates.items()},
        "difference": {name: _difference(name, finished, first) for name in PAIRED},
        "best_of_seeds": counted[0].judge.best(bests) if counted else None,
        "valid_points": estimate(list(gains.values())).mean,
        "finished": len(finished),
        "so_far": so_far,
        "runs": [_run(reading, gains[reading.run.seed]) for reading in readings],
    }


def _run(reading: Reading, gain: float | None) -> dict[str, Json]:
    return {
        "seed": reading.run.seed,
        "name": reading.run.label,
        "path": str(reading.run.path),
        "status": reading.status,
        "message": reading.message,
        **reading.numbers,
        "valid_points": gain,
    }


def _gain(reading: Reading, first: Reading | None) -> float | None:
    """Points of `valid_rate` above the first arm's run of the same seed."""
    ours, theirs = reading.numbers["valid_rate"], first.numbers["valid_rate"] if first else None
    return None if ours is None or theirs is None else round(100.0 * (ours - theirs), 6)


def _difference(name: str, finished: Sequence[Reading], first: Mapping[int, Reading]) -> dict[str, Json]:
    """How far the arm is from the first one's finished runs of the same seeds, in the number's own direction."""
    pairs = [
        (ours, theirs)
        for reading in finished
        if (other := first.get(reading.run.seed)) is not None and other.finished
        if (ours := reading.numbers[name]) is not None and (theirs := other.numbers[name]) is not None
    ]
    found = estimate([ours - theirs for ours, theirs in pairs])
    return {"seeds": found.count, "mean": found.mean, "interval": found.interval}


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a few numbers say of the mean of all that could have been.

    Attributes:
        count: how many numbers.
        mean: None of none.
        spread: sample standard deviation; None of fewer than two.
        interval: of the mean, see `bootstrap`; None of fewer than two.
    """

    count: int = 0
    mean: float | None = None
    spread: float | None = None
    interval: list[float] | None = None


def estimate(values: Sequence[float | None]) -> Estimate:
    """Of the numbers among `values`; None is a run that has none."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Estimate(len(known), known[0] if known else None)
    return Estimate(len(known), fmean(known), stdev(known), list(bootstrap(known)))


def bootstrap(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean (Efron and Tibshirani, An Introduction to the Bootstrap, 13.3).

    The resamples are the same for every call with as many values, so that equal studies say equal things. Of three
    values or fewer 95 % is their whole range: one value three times in a row is already 1 resample of 27.

    Args:
        values: at least one, finite.
        confidence: between 0 and 1.
    """
    numbers = np.asarray(values, dtype=np.float64)
    tail = (1.0 - confidence) / 2.0
    # Percentiles that are means of resamples, not points between two of them.
    low, high = np.quantile(numbers[_resamples(numbers.size)].mean(axis=1), [tail, 1.0 - tail], method="nearest")
    # Summation may round a mean of equal values beyond them.
    return max(float(low), float(numbers.min())), min(float(high), float(numbers.max()))


@lru_cache(maxsize=8)
def _resamples(size: int) -> NDArray[np.int64]:
    """Which numbers are drawn, (DRAWS, size); a table asks for the same ones hundreds of times."""
    return np.random.default_rng(0).integers(size, size=(DRAWS, size))
