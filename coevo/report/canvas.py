"""matplotlib without its noise: one style, no window, no user's settings, the same bytes every time.

Everything of matplotlib that coevo uses is imported here, in silence: where the user's home cannot be written, or
the font cache is made for the first time, it would complain on standard error. pyplot is never imported.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from coevo.files import replacing, write_atomic


@contextmanager
def _quiet_import() -> Generator[None]:
    logger = logging.getLogger("matplotlib")
    before = logger.level
    logger.setLevel(logging.ERROR)
    # A window system that matplotlib does not know would end the import; no window is opened here.
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        yield
    finally:
        logger.setLevel(before)
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


with _quiet_import():
    import matplotlib
    from matplotlib import font_manager, patheffects
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

__all__ = [
    "Axes",
    "Figure",
    "FuncFormatter",
    "LogLocator",
    "MaxNLocator",
    "font_manager",
    "one_line",
    "patheffects",
    "save",
    "style",
    "svg_text",
]  # fmt: skip

SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
LONGEST_LABEL, LONGEST_TEXT = 60, 10_000
DPI = 150

FONT = "DejaVu Sans"
"""Comes with matplotlib."""

INK, FAINT = "#333333", "#767676"

# Text becomes outlines (`path`): the figure looks the same wherever it is shown, whatever fonts are there. Its
# words are in <title> and <desc>. Formulas are off: a name with two `$` in it is a name.
STYLE: dict[str, Any] = {
    "svg.fonttype": "path",
    "svg.hashsalt": "coevo",
    "font.size": 9.0,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": "#b0b0b0",
    "axes.labelcolor": INK,
    "axes.labelsize": 8.5,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.unicode_minus": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@contextmanager
def style(fonts: Sequence[str] = (FONT,)) -> Generator[None]:
    """Coevo's style and nothing of the user's matplotlibrc; to be held while a figure is made and while it is saved.

    A letter that the first of `fonts` has not is drawn by the next.
    """
    untyped: Any = matplotlib
    with untyped.rc_context():
        untyped.rcdefaults()
        untyped.rcParams.update(STYLE)
        untyped.rcParams["font.family"] = list(fonts)
        yield


def one_line(text: str, longest: int = LONGEST_LABEL) -> str:
    """A name as a figure can show it: on one line, no control characters (XML has none), not endless."""
    clean = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return clean if len(clean) <= longest else clean[: longest - 1] + "…"


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write a figure as `stem`.svg and `stem`.png; a kill leaves the old files or the new ones.

    Raises:
        OSError: they cannot be written.
    """
    svg, png = stem.with_name(stem.name + ".svg"), stem.with_name(stem.name + ".png")
    write_atomic(svg, '<?xml version="1.0" encoding="utf-8"?>\n' + svg_text(figure) + "\n")
    with replacing(png) as file:
        file.write(_rendered(figure, "png", {"Software": None}))
    return svg, png


def svg_text(figure: Figure, title: str = "") -> str:
    """A figure as an <svg> element for inlining: no XML prolog, and ids that no other figure of the page has.

    `title` (or its suptitle) becomes <title> and its label <desc>, for those who do not see it.
    """
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    data = _rendered(figure, "svg", nothing)
    root = ElementTree.fromstring(data)
    prefix = f"f{hashlib.sha256(data).hexdigest()[:8]}-"
    for element in root.iter():
        for name, value in element.attrib.items():
            element.set(name, _renamed(name, value, prefix))
    for metadata in root.findall(f"{{{SVG}}}metadata"):
        root.remove(metadata)
    texts = {"title": title or figure.get_suptitle() or "Curves", "desc": str(figure.get_label())}
    for position, (tag, text) in enumerate(texts.items()):
        element = ElementTree.Element(f"{{{SVG}}}{tag}", {"id": prefix + tag})
        element.text = one_line(text, LONGEST_TEXT)
        root.insert(position, element)
    root.set("role", "img")
    root.set("aria-labelledby", " ".join(prefix + tag for tag in texts))
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _renamed(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == f"{{{XLINK}}}href" and value.startswith("#"):
        return f"#{prefix}{value[1:]}"
    return value.replace("url(#", f"url(#{prefix}")


def _rendered(figure: Figure, kind: str, metadata: dict[str, Any]) -> bytes:
    buffer, untyped = io.BytesIO(), cast(Any, figure)
    with style():
        untyped.savefig(buffer, format=kind, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
