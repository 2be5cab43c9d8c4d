"""One panel drawn on the axes of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coevo.numerics.objectives import written
from coevo.report.canvas import FAINT, FuncFormatter, LogLocator, MaxNLocator, one_line, patheffects
from coevo.report.panel import Curve, Panel, is_shown, mean_curve, share, shown

# Okabe and Ito's colours, told apart by every kind of colour vision, without the yellow that paper swallows.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":")

ROUND = (1, 2, 2.5, 5, 10)
"""Steps between ticks, times a power of ten."""

MOST_MARKERS = 40
MARKER, MOST_LARGER = 3.8, 6.0
"""Points: the smallest marker, and how much larger the largest may be."""
WIDE = 50.0
"""How many times the smallest value the largest must be for a logarithmic axis."""


def draw(axes: Any, panel: Panel, arms: Sequence[str], ends: tuple[float, float], *, legend: bool) -> None:
    """Draw a panel.

    Args:
        axes: matplotlib's; `Any`, because its keyword arguments have no types.
        panel: what to draw.
        arms: all of the figure, in an order that gives each its colour.
        ends: least and largest x of all panels with the same x axis.
        legend: whether the panel names its own arms, where it has more than one.
    """
    for place, (arm, seeds) in enumerate(panel.curves.items()):
        size = marker_size(place, len(panel.curves))
        _draw_arm(axes, panel, arm, arms.index(arm), [curve for curve in map(shown, seeds) if curve], size)
    axes.set_title(one_line(panel.title))
    axes.set_xlabel(one_line(panel.x_label))
    axes.set_ylabel(one_line(panel.y_label))
    points = [point for seeds in panel.curves.values() for curve in seeds for point in shown(curve)]
    if not points:
        axes.set(xticks=[], yticks=[])
        axes.text(0.5, 0.5, "no data", ha="center", va="center", color=FAINT, transform=axes.transAxes)
        return
    _reference_lines(axes, panel, points)
    _limit_x(axes, *ends)
    _limit_y(axes, panel, [y for _, y in points])
    if legend and len(panel.curves) > 1:
        # Below the axes, where it hides no curve.
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.26), ncols=5, handlelength=1.6, columnspacing=1.2)


def marker_size(place: int, of: int) -> float:
    """Diameter in points: what is drawn first is largest, so that it shows around what is drawn over it."""
    return MARKER + (of - 1 - place) * min(1.8, MOST_LARGER / max(1, of - 1))


def _draw_arm(axes: Any, panel: Panel, arm: str, index: int, seeds: Sequence[Curve], size: float) -> None:
    look = {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index // len(COLOURS) % len(DASHES)],
        "drawstyle": "steps-post" if panel.steps else "default",
    }
    if len(seeds) > 1:
        for curve in seeds:
            axes.plot(*_columns(curve), linewidth=0.8, alpha=0.4, **look)
    thick = mean_curve(seeds, panel.steps)
    marker = MARKERS[index % len(MARKERS)] if len(thick) <= MOST_MARKERS else ""
    axes.plot(
        *_columns(thick), linewidth=1.8, marker=marker, markersize=size, markeredgewidth=0.0, label=one_line(arm),
        **look,
    )  # fmt: skip


def _reference_lines(axes: Any, panel: Panel, points: Curve) -> None:
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    lines = sorted((value, name) for name, value in panel.lines.items() if is_shown(value))
    for index, (value, name) in enumerate(lines):
        axes.axhline(value, color=FAINT, linewidth=1.0, linestyle=(0, (5, 3)), zorder=1.5)
        # The lowest is named below its line and the others above: two that are close stay legible.
        below = index == 0 and len(lines) > 1
        right = _is_free_right(value, points)
        axes.annotate(
            f"{one_line(name)} {share(value) if panel.percent else written(value)}", (float(right), value),
            xycoords=("axes fraction", "data"), xytext=(0 if right else 4, -2 if below else 2),
            textcoords="offset points", ha="right" if right else "left", va="top" if below else "bottom",
            fontsize=7.5, color=FAINT, path_effects=halo, zorder=1.6,
        )  # fmt: skip


def _is_free_right(value: float, points: Curve) -> bool:
    """Whether the curves keep at least as far from a height in the right part of the plot as in the left part."""
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    left = [abs(y - value) for x, y in points if x <= low + 0.4 * (high - low)]
    right = [abs(y - value) for x, y in points if x >= high - 0.4 * (high - low)]
    return min(right) >= min(left)


def _limit_x(axes: Any, low: float, high: float) -> None:
    margin = 0.04 * (high - low) or 0.5
    axes.set_xlim(low - margin, high + margin)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1, steps=ROUND))
    axes.xaxis.set_major_formatter(FuncFormatter(_tick))


def _limit_y(axes: Any, panel: Panel, drawn: Sequence[float]) -> None:
    values = [*drawn, *filter(is_shown, panel.lines.values())]
    low, high = min(values), max(values)
    if panel.wide and low > 0.0 and high > WIDE * low:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
        axes.yaxis.set_major_locator(LogLocator(numticks=5))
        axes.yaxis.set_minor_formatter(FuncFormatter(_nothing))
    else:
        middle, half = (low + high) / 2.0, max(high - low, panel.span) / 2.0
        half = 1.15 * half or 0.1 * abs(middle) or 1.0
        low, high = middle - half, middle + half
        if panel.percent:
            # Room for the markers at 0 % and 100 %, and no more: there is nothing beyond.
            low, high = max(low, -0.03), min(high, 1.03)
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=ROUND))
    axes.yaxis.set_major_formatter(FuncFormatter(_percent if panel.percent else _tick))


def _columns(curve: Curve) -> tuple[list[float], list[float]]:
    return [x for x, _ in curve], [y for _, y in curve]


def _tick(value: float, _position: int | None = None) -> str:
    if abs(value) >= 1e6:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.6g}"


def _percent(value: float, _position: int | None = None) -> str:
    return share(value) if -1e-9 < value < 1.0 + 1e-9 else ""


def _nothing(_value: float, _position: int | None = None) -> str:
    return ""
