"""Numbers and tables as a reader wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from coevo.objectives import written

ABSENT = "-"


def number(value: float | None, digits: int = 5) -> str:
    """Up to `digits` significant digits, `-` for None."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return str(value)
    return f"{value:.{max(digits, len(str(abs(int(value)))))}g}" if abs(value) < 1e15 else f"{value:.{digits}g}"


def objective(value: float | None) -> str:
    """An objective as `coevo.objectives.written` has it, `-` for None."""
    return ABSENT if value is None else written(value)


def percent(share: float | None, decimals: int = 0) -> str:
    """A share as per cent, `-` for None."""
    return ABSENT if share is None else f"{100.0 * share:.{decimals}f} %"


def count(value: int, noun: str, plural: str = "") -> str:
    """`3 calls`, `1 call`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`0:07`, `12:05`, `3:12:05`: hours, minutes, seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def printable(text: str) -> str:
    """`text` without what would act on a terminal: control characters but line ends and tabs are escaped."""
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in text)


def table(rows: Sequence[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """Left-aligned columns two spaces apart; nothing trails."""
    every = [list(heads), *map(list, rows)] if heads else [list(row) for row in rows]
    if not every:
        return ""
    widths = [max(len(row[column]) for row in every) for column in range(len(every[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every)
    return "\n".join(line.rstrip() for line in lines)
