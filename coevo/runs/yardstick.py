"""Whether a run learns, as numbers: what `show`, the report, studies and the live view tell of it.

All of it is derived from the journal: nothing here is stored twice. A *probe* is a fixed set of answers of the
centre (the task's own prompt, the same sampling seeds every time), so that two probes differ by the weights only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import pstdev

from coevo.numerics.objectives import mean
from coevo.numerics.shaping import FAILURE, bounded_credit
from coevo.records import OUTRACED, Json, valid_share


@dataclass(frozen=True, slots=True)
class Judge:
    """What values are good.

    Attributes:
        direction: of the objective.
        baseline: of the search split, None without one.
        failure: what a failure is worth as a return, None where the task only says that it is below all others.
    """

    direction: str = "minimize"
    baseline: float | None = None
    failure: float | None = None

    @classmethod
    def of(cls, info: Mapping[str, Json]) -> Judge:
        """From a run's `run.json`."""
        task: Mapping[str, Json] = info.get("task", {})
        baseline = task.get("baseline")
        failure = task.get("failure")
        return cls(
            str(task.get("direction", "minimize")),
            None if baseline is None else float(baseline[1]),
            float(failure) if isinstance(failure, int | float) else None,
        )

    def best(self, objectives: Sequence[float]) -> float | None:
        """The best of some objectives, None of none."""
        if not objectives:
            return None
        return min(objectives) if self.direction == "minimize" else max(objectives)

    def better(self, objectives: Sequence[float], answers: int) -> float | None:
        """Share of all answers that are valid and better than the baseline; None without one.

        A difference in the sixth digit is none: it is the rounding of published values.
        """
        if self.baseline is None or not answers:
            return None
        sign = self._sign
        margin = 1e-5 * abs(self.baseline)
        return sum(sign * (value - self.baseline) > margin for value in objectives) / answers

    def credits(self, objectives: Sequence[float], answers: int) -> list[float]:
        """What every answer is worth, the failures last; empty where the task gives no measure for it.

        With a baseline the bounded credit (`coevo.numerics.shaping.bounded_credit`): 0 for a failure, 0.5 for an answer
        like the baseline, 1 for one at least 15 % better. Else the return, if the task says what a failure is worth.
        """
        failures = answers - len(objectives)
        if self.baseline:
            worth = self._sign * self.baseline
            return [bounded_credit(self._sign * value, worth) for value in objectives] + [FAILURE] * failures
        if self.failure is None:
            return []
        return [self._sign * value for value in objectives] + [self.failure] * failures

    def in_order(self, outcomes: Sequence[float | None]) -> list[float]:
        """What each answer is worth, in its place; None is a failure."""
        if len(self.credits((), 1)) == 0:
            return []
        return [self.credits([] if outcome is None else [outcome], 1)[0] for outcome in outcomes]

    @property
    def _sign(self) -> float:
        return -1.0 if self.direction == "minimize" else 1.0


@dataclass(frozen=True, slots=True)
class Point:
    """A batch or a probe as a point of a curve. None is what cannot be told.

    Attributes:
        generation: of the batch; of a probe: how many generations were done before it.
        updates: updates of the weights before it that were not zero.
        calls: model calls of the whole run until after it.
        tokens: of its prompts and completions.
        answers, valid, better: how many answers, the share that is valid, the share better than the baseline.
        score: mean of `Judge.credits` of all answers; None where there are none, and (like `better`) where answers
            were outraced, whose objectives nobody knows.
        score_error: standard error of `score`, of the answers as a random draw.
        best, mean: of the objectives of its valid answers, without those that were outraced.
        best_so_far: best objective of the run until after it; None for probes, which do not search.
        credits: what every answer is worth, in the order in which they were asked; empty where the journal has not
            the order (batches) or the task no measure.
        metrics: of the parameter updater and the engine: sigma, alpha, moved, informative, members_scored,
            variance_ratio, cosine, cosine_run.
        zero_update: why the update was zero, else empty.
    """

    generation: int
    batch: int
    operator: str
    members: int
    updates: int
    calls: int
    tokens: int
    answers: int
    valid: float
    better: float | None
    score: float | None
    score_error: float | None
    credits: Sequence[float]
    best: float | None
    mean: float | None
    best_so_far: float | None
    metrics: Mapping[str, float]
    zero_update: str
    seconds: float


def points(lines: Sequence[Mapping[str, Json]], judge: Judge) -> tuple[list[Point], list[Point]]:
    """(batches, probes) of the journal's lines `batch` and `probe`, in the order in which they happened."""
    batches: list[Point] = []
    probes: list[Point] = []
    updates = 0
    for line in lines:
        is_probe = line["kind"] == "probe"
        (probes if is_probe else batches).append(_point(line, judge, updates, is_probe))
        if not is_probe:
            updates += bool(line["update"] and line["update"].get("terms"))
    return batches, probes


def _point(line: Mapping[str, Json], judge: Judge, updates: int, is_probe: bool) -> Point:
    statuses: Mapping[str, int] = line["statuses"]
    answers = sum(statuses.values())
    objectives: Sequence[float] = line["objectives"]
    best = line.get("best")
    # What was stopped early is worth something, and nobody knows what.
    outraced = statuses.get(OUTRACED, 0)
    credits = [] if outraced else judge.credits(objectives, answers)
    return Point(
        generation=line["generation"],
        batch=line["batch"],
        operator=line["operator"],
        members=line["members"],
        updates=updates,
        calls=line["ledger"]["calls"],
        tokens=line["prompt_tokens"] + line["completion_tokens"],
        answers=answers,
        valid=valid_share(statuses),
        better=None if outraced else judge.better(objectives, answers),
        score=mean(credits) if credits else None,
        score_error=pstdev(credits) / len(credits) ** 0.5 if credits else None,
        credits=judge.in_order(line.get("outcomes", ())),
        best=judge.best(objectives),
        mean=mean(objectives) if objectives else None,
        best_so_far=None if is_probe or best is None else best["objective"],
        metrics=line["metrics"],
        zero_update=line["zero_update"],
        seconds=line["time"]["seconds"],
    )
