"""Curves and page of a study: one colour an arm, a thin line a seed, the mean thick. Imports matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coevo.learning import Point
from coevo.records import Json
from coevo.report import html
from coevo.report.canvas import Figure
from coevo.report.plots import Curve, Panel, comparison, save, svg_text
from coevo.study import tables
from coevo.study.plan import Study
from coevo.study.results import Reading

__all__ = ["draw", "page", "save"]

CALLS = "model calls"
SPAN = 0.1
"""Shares and scores that differ by less than this are drawn flat."""


def draw(study: Study, readings: Sequence[Reading]) -> Figure:
    """The figure."""

    def curves(kind: str, value: Callable[[Point], float | None]) -> dict[str, list[Curve]]:
        # An arm that has no points keeps its place, and with it its colour.
        found: dict[str, list[Curve]] = {arm: [] for arm in study.arms}
        for reading in readings:
            points: Sequence[Point] = getattr(reading, kind)
            found[reading.run.arm].append([(p.calls, y) for p in points if (y := value(p)) is not None])
        return found

    baselines = {r.judge.baseline for r in readings if r.judge.baseline is not None}
    lines = {"baseline": next(iter(baselines))} if len(baselines) == 1 else {}
    panels = [
        Panel("Valid answers of the probe", CALLS, "share", curves("probes", _valid), percent=True, span=SPAN),
        Panel("Score of the probe", CALLS, "score", curves("probes", _score), span=SPAN),
        Panel("Answers better than the baseline", CALLS, "share", curves("probes", _better), percent=True, span=SPAN),
        Panel("Best so far", CALLS, "objective", curves("batches", _best), lines=lines, steps=True, wide=True),
    ]
    return comparison(panels, study.name)


def page(study: Study, result: Mapping[str, Json], figure: Figure) -> str:
    """The study as one HTML file."""
    notes = [html.Note(line, "bad") for line in tables.failures(result)]
    curves = html.Picture(
        svg_text(figure),
        "Thin: a seed. Thick: the mean over seeds. A probe asks the weights as they are then the same each time; "
        "its calls count as well.",
    )
    sections = [
        html.Section("Result", [*notes, *(_drawn(grid) for grid in tables.grids(result))]),
        html.Section("Curves", [curves]),
        html.Section("Runs", [_drawn(tables.every_run(result))]),
        html.Section("Study", [html.Code(study.file.name, study.file.read_text(encoding="utf-8-sig"))]),
    ]
    seeds = ", ".join(str(seed) for seed in study.seeds)
    subtitle = f"{len(study.arms)} arms, seeds {seeds}; differences are to {study.arms[0]} with the same seed"
    return html.page(f"Study {study.name}", sections, subtitle=subtitle, badge=tables.finished(result))


def _drawn(grid: tables.Grid) -> html.Table:
    return html.Table(grid.caption, grid.heads, grid.rows, grid.words)


def _valid(point: Point) -> float | None:
    return point.valid


def _score(point: Point) -> float | None:
    return point.score


def _better(point: Point) -> float | None:
    return point.better


def _best(point: Point) -> float | None:
    return point.best_so_far
