"""Reads what a candidate's process said and how it ended, and makes a status of it."""

from __future__ import annotations

import json
import math
import signal
from typing import Any, NoReturn, cast

from coevo.sandbox.limits import Limits
from coevo.text import printable

FAILURES = frozenset(["syntax", "no_entry", "import", "exception", "out_of_memory", "invalid_solution", "non_finite"])
"""What a candidate may say of itself."""

UNSENDABLE = "unsendable"
"""What the author's `solve` gives the candidate cannot go to another process."""

_CLAIMS = FAILURES | {"ok", UNSENDABLE}
_MESSAGE_CHARACTERS = 500


def judge(header: dict[str, Any], claim: bytes, limits: Limits, staged: bool = False) -> tuple[str, object | None, str]:
    """The status, the claimed value and one line of explanation.

    How the process ended counts before what it said: a candidate can say anything.

    Args:
        header: of the zygote.
        claim: what the candidate wrote.
        limits: that it ran under.
        staged: whether solutions came in stages, a line each, before the last ones.
    """
    reasons = {
        "cpu": ("timeout", f"more than {limits.cpu_seconds:g} s of CPU time"),
        "wall": ("timeout", f"more than {limits.wall:g} s of wall-clock time"),
        "memory": ("out_of_memory", f"more than {limits.memory_mb} MB in all its processes"),
        "output": ("exception", f"printed more than {limits.output_kb} KB"),
        "result": ("invalid_solution", f"its answer has more than {limits.output_kb} KB"),
    }
    if header["reason"] in reasons:
        status, message = reasons[header["reason"]]
        return status, None, message
    if header["code"] < 0:
        name = _signal(-header["code"])
        if name in ("SIGXCPU", "SIGKILL") and header["cpu_seconds"] >= limits.cpu_seconds:
            return "timeout", None, reasons["cpu"][1]
        return "exception", None, f"the process was ended by {name}"
    *lines, last = claim.split(b"\n") if staged else [claim]
    if not last:
        return "exception", None, f"the process left with exit code {header['code']} and without an answer"
    status, value, message = _claimed(last)
    if status != "ok" or not lines:
        return status, value, message
    parts = [*map(read_stage, lines), cast("list[object]", value) if isinstance(value, list) else None]
    if any(part is None for part in parts):
        return "invalid_solution", None, "the answer is none that the worker writes"
    return status, [solution for part in parts for solution in part or ()], message


def _signal(number: int) -> str:
    """The name of a signal; real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_stage(line: bytes) -> list[object] | None:
    """The solutions of one stage; None where it is no list of them."""
    try:
        solutions = json.loads(line, parse_constant=_refuse, parse_float=_finite)
    except (FloatingPointError, ValueError, RecursionError):
        return None
    return cast("list[object]", solutions) if isinstance(solutions, list) else None


def _claimed(claim: bytes) -> tuple[str, object | None, str]:
    """Read a candidate's answer; anything may be in it."""
    try:
        answer = json.loads(claim, parse_constant=_refuse, parse_float=_finite)
    except FloatingPointError as error:
        return "non_finite", None, f"the answer holds {error}"
    except (ValueError, RecursionError) as error:
        return "exception", None, f"the answer is no JSON: {error}"
    fields = cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
    status = fields.get("status")
    if not isinstance(status, str) or status not in _CLAIMS:
        return "invalid_solution", None, "the answer is none that the worker writes"
    if status == "ok":
        return status, fields.get("value"), ""
    return status, None, printable(" ".join(str(fields.get("message", "")).split()))[:_MESSAGE_CHARACTERS]


def _refuse(constant: str) -> NoReturn:
    raise FloatingPointError(constant)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise FloatingPointError(text)
    return number
