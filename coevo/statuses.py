"""How an answer can end, and which of these are the model's merit or fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

Status: TypeAlias = Literal[
    "ok", "no_answer", "syntax", "no_entry", "import", "exception", "timeout", "out_of_memory", "invalid_solution",
    "non_finite", "context_overflow", "engine_error", "judge_error", "outraced",
]  # fmt: skip
STATUSES: tuple[str, ...] = get_args(Status)
OUTRACED = "outraced"
VALID: frozenset[str] = frozenset({"ok", OUTRACED})
"""Answers that work. One that is `outraced` was stopped when it was sure that its return is below the bar of its
context (`BAR`), so it has none; it is no failure."""
EXCLUDED: frozenset[str] = frozenset({"engine_error", "judge_error"})
"""Failures that are not the model's: retried, then left out; never a reward."""
BAR = "bar"
"""Key of `Context.data`: an answer whose return is below this number is of no use to who asks. A task may stop
evaluating such an answer and call it `outraced`, or may ignore it. Never in a batch that adapts."""


def valid_share(statuses: Mapping[str, int]) -> float:
    """Share of answers that are `VALID`, given a count per status; 0 of none."""
    total = sum(statuses.values())
    return sum(statuses.get(status, 0) for status in VALID) / total if total else 0.0
