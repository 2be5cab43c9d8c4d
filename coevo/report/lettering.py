"""Names in letters that matplotlib's own font has not: another font at hand draws them, else a number stands for them.

A figure that shows boxes says nothing; a legend in the text of the page or file says what the numbers mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import Any

from coevo.report.canvas import FONT, font_manager, one_line
from coevo.report.panel import Panel

LEGEND = "No font at hand has the letters of some names: "
_FONTS: Any = font_manager  # its functions have no types
_NOT_LETTERS = "Last Resort"
"""A font of this name has a box for every letter."""


@dataclass(frozen=True, slots=True)
class Lettering:
    """How the names of a figure are drawn.

    Attributes:
        fonts: families in the order in which a letter is looked up.
        stand_ins: letters that stand together and cannot be drawn → what is drawn in their place.
    """

    fonts: Sequence[str]
    stand_ins: Mapping[str, str]

    @classmethod
    def of(cls, names: Sequence[str]) -> Lettering:
        """For the names of a figure, in the order in which a reader meets them."""
        text = "\n".join(one_line(name) for name in names)
        fonts, missing = _fonts(frozenset(text) - {"\n"})
        runs = re.findall(f"[{re.escape(''.join(sorted(missing)))}]+", text) if missing else []
        numbers = (f"[{number}]" for number in count(1) if f"[{number}]" not in text)
        return cls(fonts, {run: next(numbers) for run in dict.fromkeys(runs)})

    def name(self, name: str) -> str:
        """What is drawn for a name."""
        for run in sorted(self.stand_ins, key=len, reverse=True):
            name = name.replace(run, self.stand_ins[run])
        return name

    def panel(self, panel: Panel) -> Panel:
        """A panel with its names as they are drawn."""
        return replace(
            panel,
            title=self.name(panel.title),
            x_label=self.name(panel.x_label),
            y_label=self.name(panel.y_label),
            curves={self.name(arm): seeds for arm, seeds in panel.curves.items()},
            lines={self.name(line): value for line, value in panel.lines.items()},
        )

    @property
    def legend(self) -> str:
        """What the stand-ins mean, in words; empty where there are none."""
        told = ", ".join(f"{stand_in} is {one_line(run)}" for run, stand_in in self.stand_ins.items())
        return f"{LEGEND}{told}." if told else ""


def names_of(panels: Sequence[Panel], title: str) -> list[str]:
    """Every name that a figure shows, once."""
    names = [title]
    for panel in panels:
        names += [panel.title, panel.x_label, panel.y_label, *panel.curves, *panel.lines]
    return list(dict.fromkeys(names))


def _fonts(letters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    """Families that have the letters, the usual one first, and the letters that none has."""
    families, missing = [FONT], letters - _letters(_FONTS.findfont(FONT))
    if missing:
        for family, path in _at_hand():
            if found := missing & _letters(path):
                families.append(family)
                missing -= found
    return families, missing


def _at_hand() -> list[tuple[str, str]]:
    """(family, file) of one upright font of each family, by name."""
    upright = {font.name: font.fname for font in _FONTS.fontManager.ttflist if font.style == "normal"}
    return sorted((name, path) for name, path in upright.items() if not name.startswith(_NOT_LETTERS) and name != FONT)


@cache
def _letters(path: str) -> frozenset[str]:
    try:
        return frozenset(map(chr, _FONTS.get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()  # a font that cannot be read draws nothing
