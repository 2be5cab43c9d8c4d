"""The result of a check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from coevo.records import Json

_MEND = re.compile(r"; \w+ it with: (.+)$", re.DOTALL)

State = Literal["ok", "warning", "failure"]


def _nothing() -> dict[str, Json]:
    return {}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's report.

    Attributes:
        name: what was looked at.
        state: `failure` where a run as asked for would not work.
        found: what was seen.
        mend: what to do, in a line; empty where nothing is to be done.
        data: the same for programs.
    """

    name: str
    state: State
    found: str
    mend: str = ""
    data: Mapping[str, Json] = field(default_factory=_nothing)


def parted(error: str) -> tuple[str, str]:
    """What an error says is wrong, and the command that it says mends it; empty where it names none."""
    found = _MEND.search(error)
    return (error[: found.start()], found[1].strip()) if found else (error, "")


def one_line(text: object, limit: int = 300) -> str:
    """A text without line breaks, cut where it gets long."""
    line = " ".join(str(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
