"""Asking a child process, which may crash or hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from coevo.machine.places import interpreter
from coevo.records import Json
from coevo.tools.doctor.checks import one_line

PROGRAM = "coevo.tools.doctor.inside"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: `told`, or why nothing did. `seconds` is how long it took."""

    told: Mapping[str, Json]
    error: str
    seconds: float
    mend: str = ""


def ask(what: str, arguments: Mapping[str, Json], seconds: float, program: str = PROGRAM) -> Answer:
    """Do `what` of `coevo.tools.doctor.inside` in a child process.

    The child's output is kept from the user. When the time is over, it ends with all that it started.

    Args:
        what: name of the question.
        arguments: of it.
        seconds: how long it may take.
        program: the module that answers.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coevo-doctor-") as folder:
        result, said = Path(folder) / "result.json", Path(folder) / "said.txt"
        command = [interpreter(), "-P", "-m", program, what, json.dumps(arguments), str(result)]
        # What this process can import, whatever way it came to it.
        paths = os.pathsep.join(path for path in sys.path if path)
        with said.open("wb") as output:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, "PYTHONPATH": paths},
            )  # fmt: skip
            try:
                code = child.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(child)
        took = time.monotonic() - started
        if code is None:
            return Answer({}, f"no answer in {seconds:.0f} s; it was ended", took, "give it longer with --timeout")
        if not result.exists():
            return Answer({}, f"{_ended(code)}{_last(said)}", took)
        told = cast(dict[str, Any], json.loads(result.read_text(encoding="utf-8")))
        return Answer(told, str(told.get("error", "")), took)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it left behind: it leads a group of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _ended(code: int) -> str:
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with code {code}"


def _last(said: Path) -> str:
    """The last line that it said."""
    lines = [line for line in said.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return f": {one_line(lines[-1])}" if lines else ""
