"""What a check says: rows, one for each thing that was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "warning", "failure", "skipped"]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that was looked at.

    Attributes:
        state: `failure` if it is not as it should be, `warning` if it works and is likely a mistake, `skipped` if
            it could not be tried.
        name: what was looked at, or what was sent.
        found: what was seen, in one line.
        status: how a candidate was classified, empty for other rows.
        expected: the status that a candidate should have.
    """

    state: State
    name: str
    found: str
    status: str = ""
    expected: str = ""


def one_line(error: BaseException) -> str:
    """An error in one line, with its type."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
