"""Numbers and tables as a reader wants them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

from coevo.numerics.objectives import written

ABSENT = "-"


def number(value: float | None, digits: int = 5) -> str:
    """Up to `digits` significant digits, `-` for None and what is not finite."""
    if not _is_known(value):
        return ABSENT
    return f"{value:.{max(digits, len(str(abs(int(value)))))}g}" if abs(value) < 1e15 else f"{value:.{digits}g}"


def objective(value: float | None) -> str:
    """An objective as `coevo.numerics.objectives.written` has it, `-` as for `number`."""
    return written(value) if _is_known(value) else ABSENT


def percent(share: float | None, decimals: int = 0) -> str:
    """A share as per cent, `-` as for `number`."""
    return f"{100.0 * share:.{decimals}f} %" if _is_known(share) else ABSENT


def _is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def count(value: int, noun: str, plural: str = "") -> str:
    """`3 calls`, `1 call`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`0:07`, `12:05`, `3:12:05`: hours, minutes, seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def table(rows: Sequence[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """Left-aligned columns two spaces apart; nothing trails."""
    every = [list(heads), *map(list, rows)] if heads else [list(row) for row in rows]
    if not every:
        return ""
    widths = [max(len(row[column]) for row in every) for column in range(len(every[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in every)
    return "\n".join(line.rstrip() for line in lines)
