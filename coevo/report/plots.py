"""Curves as small multiples: a run's report and the comparison of several runs are drawn by the same code.

Usage::

    panel = Panel("Best so far", "model calls", "objective", {"es": [[(0, 9.0), (128, 7.1)]]}, {"baseline": 7.0})
    save(comparison([panel], "es and none"), Path("out/curves"))   # curves.svg, curves.png
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from coevo.numerics.objectives import written
from coevo.report.axes import draw
from coevo.report.canvas import FAINT, Figure, one_line, save, style, svg_text
from coevo.report.lettering import LEGEND, Lettering, names_of
from coevo.report.panel import Curve, Panel, mean_curve, share, shown

__all__ = ["Curve", "Panel", "comparison", "describe", "legend", "mean_curve", "save", "svg_text"]

WIDTH, ROW_HEIGHT = 10.0, 2.7


def comparison(panels: Sequence[Panel], title: str = "", *, own: bool = False) -> Figure:
    """All panels in one figure, two a row; an arm has the same colour and marker in every one, and so has an x axis.

    With several seeds each is a thin line and their mean a thick one. The figure's label describes it in words.

    Args:
        panels: in reading order.
        title: above them.
        own: whether each panel has arms of its own, whose colours begin anew.
    """
    label = describe(panels)
    lettering = Lettering.of(names_of(panels, title))
    panels, title = [lettering.panel(panel) for panel in panels], lettering.name(title)
    arms = list(dict.fromkeys(arm for panel in panels for arm in panel.curves))
    columns = 2 if len(panels) > 1 else 1
    rows = max(1, math.ceil(len(panels) / columns))
    # One legend for all where all have the same arms.
    shared = not own and len(arms) > 1 and all(list(panel.curves) == arms for panel in panels)
    height = ROW_HEIGHT * rows + 0.35 * bool(title) + 0.3 * shared
    with style(lettering.fonts):
        figure = Figure(figsize=(WIDTH if columns > 1 else 0.7 * WIDTH, height), layout="constrained")
        figure.set_label(" ".join(filter(None, (label, lettering.legend))))
        untyped: Any = figure
        untyped.get_layout_engine().set(w_pad=0.12, h_pad=0.09)
        for index, panel in enumerate(panels):
            named = list(panel.curves) if own else arms
            axes = untyped.add_subplot(rows, columns, index + 1)
            draw(axes, panel, named, _ends(panels, panel.x_label), legend=not shared)
        if not panels:
            untyped.text(0.5, 0.45, "nothing to plot yet", ha="center", color=FAINT)
        if title:
            untyped.suptitle(one_line(title), fontweight="bold", fontsize=11.0)
        if shared:
            handles, labels = figure.axes[0].get_legend_handles_labels()
            untyped.legend(handles, labels, loc="outside lower center", ncols=min(len(arms), 5))
    return figure


def describe(panels: Sequence[Panel]) -> str:
    """The figure in words: for each curve where it begins and where it ends."""
    return " ".join(f"{one_line(panel.title)}: {_told(panel)}." for panel in panels) or "Nothing to plot yet."


def legend(figure: Figure) -> str:
    """What the numbers mean that a figure shows in place of names which no font at hand can draw; mostly nothing."""
    _, mark, told = str(figure.get_label()).rpartition(LEGEND)
    return mark + told if mark else ""


def _ends(panels: Sequence[Panel], x_label: str) -> tuple[float, float]:
    """Least and largest x of the panels whose x axis says the same."""
    alike = [panel for panel in panels if panel.x_label == x_label]
    xs = [x for panel in alike for seeds in panel.curves.values() for curve in seeds for x, _ in shown(curve)]
    return min(xs, default=0.0), max(xs, default=0.0)


def _told(panel: Panel) -> str:
    parts: list[str] = []
    for arm, seeds in panel.curves.items():
        texts = [share(y) if panel.percent else written(y) for _, y in mean_curve(seeds, panel.steps)]
        value = f"from {texts[0]} to {texts[-1]}" if len(texts) > 1 else (texts or ["no data"])[0]
        parts.append(f"{one_line(arm)} {value}")
    return ", ".join(parts) or "no data"
