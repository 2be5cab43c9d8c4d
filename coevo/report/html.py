"""A page of blocks as one self-contained HTML file: no script, no request, everything escaped.

Usage::

    page("A study", [Section("Result", [Facts([("best", "6.44")]), Picture(svg_text(figure), "Best so far.")])])

Only the `svg` of a `Picture` is taken as markup; it must come from `coevo.report.plots.svg_text`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any, Literal, TypeAlias

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from coevo.report.tables import Table
from coevo.text import printable


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what there is to say of them."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The few numbers that matter: (name, value, remark)."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG element as `coevo.report.plots.svg_text` gives it."""

    svg: str
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """A text as it is, under the name of its file."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A remark; `tone` colours its edge, `quiet` has none."""

    text: str
    tone: Literal["plain", "good", "bad", "quiet"] = "plain"


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that are folded away until asked for; they are printed."""

    title: str
    blocks: Sequence[Block]


Block: TypeAlias = Facts | Tiles | Table | Picture | Code | Note | Fold


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: Sequence[Block]


def page(title: str, sections: Sequence[Section], *, subtitle: str = "", badge: str = "") -> str:
    """The whole file. Sections without blocks are left out.

    Args:
        title: of the page.
        sections: in order.
        subtitle: a line below the title.
        badge: a word beside the title, such as the status of a run.
    """
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_visible
    )
    environment.filters |= {"drawn": Markup, "kind": lambda block: type(block).__name__.lower()}
    source = files("coevo.report").joinpath("report.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source).render(
        title=title,
        sections=[section for section in sections if section.blocks],
        subtitle=subtitle,
        badge=badge,
        version=_version(),
    )


def _version() -> str:
    try:
        return version("coevo")
    except PackageNotFoundError:
        return ""


def _visible(value: Any) -> Any:
    """Texts of a model or a stranger with what acts on a reader's terminal, or turns a line round, as escapes."""
    return printable(value) if type(value) is str else value
