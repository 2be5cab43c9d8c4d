"""The curves of one run, from the points of its journal.

All share one x axis, the generation: a batch stands where it began, a probe where it was asked. Only the best so far
is drawn over the model calls, because that is what a budget buys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from coevo.records import Json
from coevo.report.panel import Curve, Panel
from coevo.runs.yardstick import Point

MOST_OPERATORS = 7
"""More than these are not told apart: there is one curve for all."""

SPAN = 0.1
"""Least height of an axis of shares: a change of a hundredth should look like one."""

GENERATION = "generation"

Value: TypeAlias = Callable[[Point], float | None]


@dataclass(frozen=True, slots=True)
class Group:
    """Panels that answer one question, and how to read them."""

    title: str
    note: str
    panels: Sequence[Panel]


def groups(batches: Sequence[Point], probes: Sequence[Point], task: Mapping[str, Json]) -> list[Group]:
    """All groups for which the run has data.

    Args:
        batches: points of the batches, in order.
        probes: points of the probes, in order.
        task: the entry `task` of `run.json`: direction, reference, baseline.
    """
    steps = 1 + max((point.batch for point in (*batches, *probes)), default=0)
    draft = _Draft(steps, _lines(task), str((task.get("baseline") or ["the baseline"])[0]))
    every = [draft.learning(probes), draft.search(batches), draft.strategy(batches)]
    return [Group(group.title, group.note, panels) for group in every if (panels := _with_data(group.panels))]


def _lines(task: Mapping[str, Json]) -> dict[str, float]:
    pairs = [task.get("reference"), task.get("baseline")]
    return {str(pair[0]): float(pair[1]) for pair in pairs if pair}


def _with_data(panels: Sequence[Panel]) -> list[Panel]:
    """Panels without the curves that have no point, and without those that are left with none."""
    return [panel for panel in panels if any(curve for seeds in panel.curves.values() for curve in seeds)]


@dataclass(frozen=True, slots=True)
class _Draft:
    """What panels of one run share: batches a generation, reference lines of the objective, name of the baseline."""

    steps: int
    lines: Mapping[str, float]
    baseline: str

    def learning(self, probes: Sequence[Point]) -> Group:
        score, title = self._curves(probes, score=lambda p: p.score), "Probe: share of the answers"
        start = {"start": score["score"][0][0][1]} if score else {}
        valid: dict[str, Value] = {"valid": lambda p: p.valid, f"better than {self.baseline}": lambda p: p.better}
        panels = [
            Panel("Probe: score", GENERATION, "score", score, start, span=SPAN),
            Panel(title, GENERATION, "", self._curves(probes, **valid), percent=True, span=SPAN),
        ]
        if not score:
            mean = self._curves(probes, mean=lambda p: p.mean)
            panels.append(Panel("Probe: mean objective", GENERATION, "objective", mean, wide=True))
        note = (
            "A probe asks the unperturbed weights the task's own prompt with the same sampling seeds every time, so "
            "two probes differ by the weights only. Score is the mean credit of all answers: 0 where all fail, 1 "
            "where all are at least 15 % better than the baseline."
        )
        return Group("What the weights have learned", note, panels)

    def search(self, batches: Sequence[Point]) -> Group:
        best = [(float(p.calls), p.best_so_far) for p in batches if p.best_so_far is not None]
        found = self._curves(batches, mean=lambda p: p.mean, best=lambda p: p.best)
        title = "Objective of the valid answers of a batch"
        panels = [
            Panel("Best so far", "model calls", "objective", _told(best=best), self.lines, steps=True, wide=True),
            Panel(title, GENERATION, "objective", found, self.lines, wide=True),
            self._by_operator("Valid answers of a batch", batches, lambda p: p.valid),
            self._by_operator(f"Answers of a batch better than {self.baseline}", batches, lambda p: p.better),
        ]
        note = (
            "What the batches found. Means are over valid answers, without those that were outraced; failures count in "
            "the valid rate only."
        )
        return Group("What the search has found", note, panels)

    def strategy(self, batches: Sequence[Point]) -> Group:
        sizes = self._curves(batches, sigma=_metric("sigma"), alpha=_metric("alpha"))
        moved = self._curves(batches, moved=_metric("moved"))
        informative = self._curves(batches, informative=_informative)
        ratio = self._curves(batches, ratio=_metric("variance_ratio"))
        cosines = {"of the update": _metric("cosine"), "of the whole run": _metric("cosine_run")}
        reached, title = self._curves(batches, **cosines), "Variance between members over within"
        panels = [
            Panel("Size of perturbation and step", GENERATION, "", sizes),
            Panel("Weights that a perturbation moves", GENERATION, "", moved, percent=True, span=SPAN),
            Panel("Members that are informative", GENERATION, "", informative, percent=True, span=SPAN),
            Panel(title, GENERATION, "ratio", ratio, {"noise": 1.0}, wide=True),
            Panel("Update that reaches the served weights", GENERATION, "cosine", reached, span=SPAN),
        ]
        note = (
            "Whether there is a signal to follow. A perturbation that is rounded away moves no weight; a member is "
            "informative if its mean credit differs from the median member's; a variance ratio of 1 is what noise "
            "alone gives; a cosine of 1 says that served weights moved just as the update meant."
        )
        return Group("What the evolution strategy does", note, panels)

    def _by_operator(self, title: str, points: Sequence[Point], value: Value) -> Panel:
        names = list(dict.fromkeys(point.operator for point in points))
        curves = self._curves(points, all=value)
        if 1 < len(names) <= MOST_OPERATORS:
            each = {n or "no operator": [p for p in points if p.operator == n] for n in names}
            curves = _told(**{name: self._curve(own, value) for name, own in each.items()})
        return Panel(title, GENERATION, "", curves, percent=True, span=SPAN)

    def _curves(self, points: Sequence[Point], **values: Value) -> dict[str, list[Curve]]:
        return _told(**{name: self._curve(points, value) for name, value in values.items()})

    def _curve(self, points: Sequence[Point], value: Value) -> list[tuple[float, float]]:
        told = ((point.generation + max(point.batch, 0) / self.steps, value(point)) for point in points)
        return [(x, y) for x, y in told if y is not None]


def _told(**curves: Curve) -> dict[str, list[Curve]]:
    """Those that have a point."""
    return {name: [curve] for name, curve in curves.items() if curve}


def _metric(name: str) -> Value:
    return lambda point: point.metrics.get(name)


def _informative(point: Point) -> float | None:
    informative, scored = point.metrics.get("informative"), point.metrics.get("members_scored")
    return informative / scored if informative is not None and scored else None
