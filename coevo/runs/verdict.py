"""Is ES doing anything? The question that every run answers, in one line and in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import hypot
from statistics import fmean, median, pstdev

from coevo.records import Json
from coevo.runs.yardstick import Judge, Point, points

NOISE = 1.2
"""Variance ratios up to here are what members that do not differ give as well (1 on average)."""

ERRORS = 2.0
"""A change of the probe's score by fewer standard errors is none."""

FEWEST = 8
"""Fewer answers tell nothing."""

SIZES = ("rounded away", "sigma", "alpha", "32-bit")
"""Words of the reasons that other sizes would mend."""


def learning(lines: Sequence[Mapping[str, Json]], judge: Judge, run: str) -> dict[str, Json]:
    """What the journal's batches and probes say of the weights; `verdict` is for the reader.

    `variance_ratio` and `cosine` are medians over the adapting batches, `informative` a mean; `moved`, `cosine_run`,
    `drift` and `drifted` are the last ones.

    Args:
        lines: journal lines `batch` and `probe` in order.
        judge: of the run's task.
        run: what to type after `coevo tune`.
    """
    batches, probes = points(lines, judge)
    adapted = [batch for batch in batches if batch.members]
    return {
        "verdict": _verdict(adapted, probes, run),
        "adapting_batches": len(adapted),
        "zero_updates": sum(bool(batch.zero_update) for batch in adapted),
        "moved": _last(adapted, "moved"),
        "informative": _share(adapted),
        "variance_ratio": _middle(adapted, "variance_ratio"),
        "cosine": _middle(adapted, "cosine"),
        "cosine_run": _last(adapted, "cosine_run"),
        "drift": _last(adapted, "drift"),
        "drifted": _last(adapted, "drifted"),
        "probes": [_told(probe) for probe in probes],
    }


def _told(probe: Point) -> dict[str, Json]:
    return {
        "generation": probe.generation,
        "updates": probe.updates,
        "calls": probe.calls,
        "answers": probe.answers,
        "valid_rate": probe.valid,
        "better_rate": probe.better,
        "score": probe.score,
        "score_error": probe.score_error,
        "mean": probe.mean,
    }


def _verdict(adapted: Sequence[Point], probes: Sequence[Point], run: str) -> str:
    if not adapted:
        return ""
    zero = [batch.zero_update for batch in adapted if batch.zero_update]
    if len(zero) == len(adapted):
        reason = Counter(zero).most_common(1)[0][0]
        hint = f"; for sizes that can: coevo tune {run}" if any(word in reason for word in SIZES) else ""
        return f"the weights cannot learn like this: {_all(len(zero))} zero, because {reason}{hint}"
    steps = f"{len(adapted) - len(zero)} of {len(adapted)} updates moved the weights"
    ratio = _middle(adapted, "variance_ratio")
    noise = ""
    if ratio is not None and ratio <= NOISE:
        noise = f"; members of one batch hardly differ (variance ratio {ratio:.2f}, 1 is noise), see: coevo tune {run}"
    return f"{_change(probes)}; {steps}{noise}"


def _all(count: int) -> str:
    return "its only update was" if count == 1 else f"all {count} updates were"


def _change(probes: Sequence[Point]) -> str:
    """What the last probe says against the first."""
    if not probes:
        return "not probed"
    if len(probes) < 2:
        return "probed once so far"
    first, last = probes[0], probes[-1]
    valid = f"valid answers {_percent(first.valid)} → {_percent(last.valid)}"
    if first.better is not None and last.better is not None:
        valid += f", better than the baseline {_percent(first.better)} → {_percent(last.better)}"
    if first.score is None or last.score is None:
        return f"the centre: {valid}"
    error = _error(first, last)
    change = last.score - first.score
    word = "no visible change"
    if last.answers < FEWEST:
        word = f"{last.answers} answers cannot tell"
    elif abs(change) > ERRORS * error:
        word = "the centre gets better" if change > 0.0 else "the centre gets worse"
    return f"{word}: probe score {first.score:.3f} → {last.score:.3f} (± {error:.3f}), {valid}"


def _error(first: Point, last: Point) -> float:
    """Standard error of the change of the score: of the answers' own changes, since both asked the same."""
    if first.credits and len(first.credits) == len(last.credits):
        changes = [now - before for before, now in zip(first.credits, last.credits, strict=True)]
        return pstdev(changes) / len(changes) ** 0.5
    return hypot(first.score_error or 0.0, last.score_error or 0.0)


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"


def _last(adapted: Sequence[Point], metric: str) -> float | None:
    values = _values(adapted, metric)
    return values[-1] if values else None


def _middle(adapted: Sequence[Point], metric: str) -> float | None:
    values = _values(adapted, metric)
    return median(values) if values else None


def _values(adapted: Sequence[Point], metric: str) -> list[float]:
    return [value for batch in adapted if (value := batch.metrics.get(metric)) is not None]


def _share(adapted: Sequence[Point]) -> float | None:
    """Mean share of the scored members whose credit differs from the others'."""
    shares = [
        batch.metrics["informative"] / batch.metrics["members_scored"]
        for batch in adapted
        if batch.metrics.get("members_scored") and batch.metrics.get("informative") is not None
    ]
    return fmean(shares) if shares else None
