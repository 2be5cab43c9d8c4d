"""Curves and page of a comparison: one colour an arm, a thin line a seed, the mean thick. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from coevo.files import read_text
from coevo.records import Json
from coevo.report import html
from coevo.report.canvas import Figure
from coevo.report.plots import Curve, Panel, comparison, legend, save, svg_text
from coevo.runs.yardstick import Point
from coevo.tools.study import tables
from coevo.tools.study.frame import Cell, Frame
from coevo.tools.study.results import Reading

__all__ = ["draw", "page", "save"]

CALLS = "model calls"
SPAN = 0.1
"""Shares and scores that differ by less than this are drawn flat."""


def draw(frame: Frame, readings: Sequence[Reading]) -> Figure:
    """The figure: for each cell the best so far, beside it the valid answers; where there are probes, theirs too."""
    panels: list[Panel] = []
    for cell in frame.cells:
        panels += _Draft(frame.arms, cell, [r for r in readings if r.run.cell == cell]).panels()
    return comparison(panels, frame.name)


def page(frame: Frame, result: Mapping[str, Json], figure: Figure) -> str:
    """The comparison as one HTML file."""
    notes = [html.Note(line, "bad") for line in tables.failures(result)]
    curves = html.Picture(
        svg_text(figure),
        "Thin: a seed. Thick: the mean over seeds. A probe asks the weights as they are then the same each time; "
        f"its calls count as well. {legend(figure)}".rstrip(),
    )
    remarks = [html.Note(line, "quiet") for line in tables.remarks(result)]
    source = Path(frame.source)
    sections = [
        html.Section("Result", [*notes, *tables.tables(result), *remarks]),
        html.Section("Curves", [curves]),
        html.Section("Runs", [tables.every_run(result)]),
    ]
    if source.is_file():
        sections.append(html.Section("Study", [html.Code(source.name, read_text(source))]))
    seeds = ", ".join(str(seed) for seed in frame.seeds)
    subtitle = f"{len(frame.arms)} arms, seeds {seeds}; differences are to {frame.arms[0]} with the same seed"
    title = f"Study {frame.name}" if frame.source else frame.name.capitalize()
    return html.page(title, sections, subtitle=subtitle, badge=tables.finished(result))


class _Draft:
    """The panels of one cell."""

    def __init__(self, arms: Sequence[str], cell: Cell, readings: Sequence[Reading]) -> None:
        self._arms, self._readings = arms, readings
        self._of = f"{cell}: " if cell.parts else ""
        baselines = {r.judge.baseline for r in readings if r.judge.baseline is not None}
        self._lines = {"baseline": next(iter(baselines))} if len(baselines) == 1 else {}

    def panels(self) -> list[Panel]:
        best = self._panel("Best so far", "objective", lambda r: _at(r.batches, lambda p: p.best_so_far))
        better = self._panel("Answers better than the baseline", "share", lambda r: _at(r.probes, lambda p: p.better))
        best = replace(best, lines=self._lines, steps=True, wide=True)
        if any(reading.probes for reading in self._readings):
            return [
                self._panel("Valid answers of the probe", "share", lambda r: _at(r.probes, lambda p: p.valid)),
                self._panel("Score of the probe", "score", lambda r: _at(r.probes, lambda p: p.score)),
                better,
                best,
            ]
        # Of one batch it is the luck of ten answers.
        return [best, self._panel("Valid answers so far", "share", lambda r: _valid_so_far(r.batches))]

    def _panel(self, title: str, y_label: str, curve: Callable[[Reading], Curve]) -> Panel:
        # An arm that has no points keeps its place, and with it its colour.
        curves = {arm: [curve(r) for r in self._readings if r.run.arm == arm] for arm in self._arms}
        span = 0.0 if y_label == "objective" else SPAN
        title = f"{self._of}{title.lower()}" if self._of else title
        return Panel(title, CALLS, y_label, curves, percent=y_label == "share", span=span)


def _at(points: Sequence[Point], value: Callable[[Point], float | None]) -> Curve:
    return [(point.calls, y) for point in points if (y := value(point)) is not None]


def _valid_so_far(batches: Sequence[Point]) -> Curve:
    answers = list(accumulate(point.answers for point in batches))
    valid = accumulate(point.valid * point.answers for point in batches)
    return [(p.calls, v / n) for p, v, n in zip(batches, valid, answers, strict=True) if n]
