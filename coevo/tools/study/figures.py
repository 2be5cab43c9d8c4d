"""Curves and page of a comparison: one colour an arm, a thin line a seed, the mean thick. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    drawn = [_drawn(grid) for grid in tables.grids(result)]
    measures = [html.Note(line, "quiet") for line in (*tables.measures(result), *tables.cut_off(result))]
    source = Path(frame.source)
    sections = [
        html.Section("Result", [*notes, *drawn, *measures]),
        html.Section("Curves", [curves]),
        html.Section("Runs", [_drawn(tables.every_run(result))]),
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
        probes = [
            Panel(
                self._title("Valid answers of the probe"), CALLS, "share", self._curves("probes", _valid),
                percent=True, span=SPAN,
            ),
            Panel(self._title("Score of the probe"), CALLS, "score", self._curves("probes", _score), span=SPAN),
            Panel(
                self._title("Answers better than the baseline"), CALLS, "share", self._curves("probes", _better),
                percent=True, span=SPAN,
            ),
        ]  # fmt: skip
        best = Panel(
            self._title("Best so far"), CALLS, "objective", self._curves("batches", _best), lines=self._lines,
            steps=True, wide=True,
        )  # fmt: skip
        if any(reading.probes for reading in self._readings):
            return [*probes, best]
        # Of one batch it is the luck of ten answers.
        valid: dict[str, list[Curve]] = {arm: [] for arm in self._arms}
        for reading in self._readings:
            valid[reading.run.arm].append(_valid_so_far(reading.batches))
        return [best, Panel(self._title("Valid answers so far"), CALLS, "share", valid, percent=True, span=SPAN)]

    def _title(self, text: str) -> str:
        return f"{self._of}{text.lower()}" if self._of else text

    def _curves(self, kind: str, value: Callable[[Point], float | None]) -> dict[str, list[Curve]]:
        # An arm that has no points keeps its place, and with it its colour.
        found: dict[str, list[Curve]] = {arm: [] for arm in self._arms}
        for reading in self._readings:
            points: Sequence[Point] = getattr(reading, kind)
            found[reading.run.arm].append([(p.calls, y) for p in points if (y := value(p)) is not None])
        return found


def _valid_so_far(batches: Sequence[Point]) -> Curve:
    answers = list(accumulate(point.answers for point in batches))
    valid = accumulate(point.valid * point.answers for point in batches)
    return [(p.calls, v / n) for p, v, n in zip(batches, valid, answers, strict=True) if n]


def _valid(point: Point) -> float | None:
    return point.valid


def _score(point: Point) -> float | None:
    return point.score


def _better(point: Point) -> float | None:
    return point.better


def _best(point: Point) -> float | None:
    return point.best_so_far


def _drawn(grid: tables.Grid) -> html.Table:
    return html.Table(grid.caption, grid.heads, grid.rows, grid.words)
