"""What the tests of all problems that come with coevo need: folders, templates, and candidates that mean harm."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from typing import Any, cast

import coevo_heuristics
from coevo.sandbox import Evaluation, Evaluator, Limits, load_problem

PROBLEMS = Path(coevo_heuristics.__file__).parent / "problems"
# A loop or a hog shall end soon; a good candidate takes a tenth of this.
LIMITS = Limits(cpu_seconds=1.0, wall_seconds=4.0, memory_mb=128, output_kb=1024, file_mb=16, processes=16)
# Put before a good heuristic; what these do has nothing to do with the problem.
HOSTILE = {
    "an endless loop": ("while True: pass", "timeout"),
    "a sleep": ("import time; time.sleep(1000)", "timeout"),
    "a crash": ("import ctypes; ctypes.string_at(0)", "exception"),
    "os._exit": ("import os; os._exit(0)", "exception"),
    "an error": ("1 / 0", "exception"),
    "a memory hog": ("x = bytearray(10**10)", "out_of_memory"),
    "a gigabyte of output": ("import os\nfor _ in range(1024): os.write(1, bytes(1 << 20))", "exception"),
    "a forged objective": (
        'import os\nos.write(3, b\'{"status": "ok", "objective": 0.001, "value": 0.001}\\n\'); os._exit(0)',
        "invalid_solution",
    ),
    "a forged result that is not finite": (
        'import os\nos.write(3, b\'{"status": "ok", "value": [NaN, 1e999]}\'); os._exit(0)',
        "non_finite",
    ),
    "no Python": ("def broken(:", "syntax"),
    "a missing module": ("import nothing_like_this", "import"),
    "a kill of all that it sees": (
        "import os, signal\nfor pid in (os.getppid(), -1):\n    try:\n        if pid: os.kill(pid, 9)\n"
        "    except OSError: pass",
        "ok",
    ),
}


def module(name: str) -> Any:
    """evaluate.py of a problem, as the run loads it."""
    return cast(Any, load_problem(PROBLEMS / name / "evaluate.py"))


def specification(name: str) -> dict[str, Any]:
    """problem.toml of a problem."""
    return tomllib.loads((PROBLEMS / name / "problem.toml").read_text("utf-8"))


def seed(name: str, kind: str) -> str:
    """The module that a hole's template is as it stands."""
    return (PROBLEMS / name / specification(name)["holes"][kind]["template"]).read_text("utf-8")


def filled(name: str, expression: str) -> str:
    """The module that the expression hole gives for `expression`."""
    return seed(name, "expression").replace(specification(name)["holes"]["expression"]["replace"], expression)


def entry_of(name: str, kind: str = "function") -> Any:
    """The seed heuristic as a function in this process."""
    spec = specification(name)
    path = PROBLEMS / name / spec["holes"][kind]["template"]
    loader = importlib.util.spec_from_file_location(f"{name}_{kind}", path)
    assert loader is not None
    assert loader.loader is not None
    loaded = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(loaded)
    return getattr(loaded, spec["entry"])


def references(name: str, method: str) -> dict[str, float]:
    """The values that problem.toml gives for one method, by split."""
    return {r["split"]: r["value"] for r in specification(name)["references"] if r["name"] == method}


def attacked(evaluator: Evaluator, attack: str, good: str) -> Evaluation:
    """What becomes of a good heuristic with an attack before it."""
    return evaluator.evaluate(f"{attack}\n\n{good}")
