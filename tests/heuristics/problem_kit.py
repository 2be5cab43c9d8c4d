"""What the tests of all problems that come with coevo need: folders, templates, and candidates that mean harm."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import coevo_heuristics
from coevo.sandbox import Evaluation, Evaluator, load_problem
from tests.sandbox_limits import AMPLE, SMALL

PROBLEMS = Path(coevo_heuristics.__file__).parent / "problems"
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
        'import os\nos.write(4, b\'{"status": "ok", "objective": 0.001, "value": 0.001}\\n\'); os._exit(0)',
        "invalid_solution",
    ),
    "a forged result that is not finite": (
        'import os\nos.write(4, b\'{"status": "ok", "value": [NaN, 1e999]}\'); os._exit(0)',
        "invalid_solution",
    ),
    "no Python": ("def broken(:", "syntax"),
    "a missing module": ("import nothing_like_this", "import"),
    "a kill of all that it sees": (
        "import os, signal\nfor pid in (os.getppid(), -1):\n    try:\n        if pid: os.kill(pid, 9)\n"
        "    except OSError: pass",
        "ok",
    ),
}

# The first argument has the size of the problem as its length; `honest` is the seed of the problem.
MATRIX_HOSTILE = {
    "a crash": ("def heuristics(d, *_): return d[99999]", "exception"),
    "a crash of the interpreter": (
        "import ctypes\ndef heuristics(d, *_): return ctypes.string_at(0)",
        "exception",
    ),
    "an exit": ("def heuristics(d, *_): raise SystemExit", "exception"),
    "an endless loop": ("def heuristics(d, *_):\n    while True: pass", "timeout"),
    "a not-a-number": ("def heuristics(d, *_): return np.full((len(d), len(d)), np.nan)", "non_finite"),
    "one not-a-number": (
        "def heuristics(d, *_):\n    h = np.ones((len(d), len(d)))\n    h[1, 2] = np.nan\n    return h",
        "non_finite",
    ),
    "an infinity": ("def heuristics(d, *_): return np.full((len(d), len(d)), -np.inf)", "non_finite"),
    "a wrong shape": ("def heuristics(d, *_): return np.ones((len(d), len(d) - 1))", "invalid_solution"),
    "one row": ("def heuristics(d, *_): return np.ones(len(d))", "invalid_solution"),
    "one number": ("def heuristics(d, *_): return 1.0", "invalid_solution"),
    "nothing": ("def heuristics(d, *_): return None", "invalid_solution"),
    "a text": ("def heuristics(d, *_): return 'near'", "invalid_solution"),
    "complex numbers": ("def heuristics(d, *_): return np.ones((len(d), len(d))) * 1j", "invalid_solution"),
    "ragged lists": ("def heuristics(d, *_): return [[1.0], [1.0, 2.0]]", "exception"),
    "ten gigabytes of memory": ("def heuristics(d, *_): return bytearray(10**10)", "out_of_memory"),
    "memory bit by bit": (
        "def heuristics(d, *_):\n    x = []\n    while True: x.append(bytearray(10**6))",
        "out_of_memory",
    ),
    "no function": ("heuristics = 3", "no_entry"),
    "an import of what is not there": ("import not_there\ndef heuristics(d, *_): return None", "import"),
    "a patched evaluator": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('coevo_problem'):\n"
        "        module.objective = lambda *_: 0.001\n        module.solve = lambda *_: [0]\n"
        "def heuristics(d, *_): return None",
        "invalid_solution",
    ),
    "a forged objective": (
        'import os\nos.write(4, b\'{"status": "ok", "objective": 0.001, "value": 0.001}\\n\'); os._exit(0)',
        "invalid_solution",
    ),
}
# Odd, and yet heuristics: values are cut off below, and only ratios count.
MATRIX_ODD = {
    "negative values": "def heuristics(d, *_): return np.full((len(d), len(d)), -1)",
    "huge values": "def heuristics(d, *_): return np.full((len(d), len(d)), 1e308)",
    "truth values": "def heuristics(d, *_): return np.ones((len(d), len(d)), bool)",
    "lists": "def heuristics(d, *_): return [[1] * len(d)] * len(d)",
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
    found = {r["split"]: r["value"] for r in specification(name)["references"] if r["name"] == method}
    assert found, method
    return found


def baseline(name: str) -> float:
    """The value on the search split that a search should beat."""
    (found,) = (r["value"] for r in specification(name)["references"] if r.get("baseline"))
    return found


def source(text: str) -> str:
    """A module that has numpy."""
    return f"import numpy as np\n{text}\n"


def evaluator_of(name: str, hasty: bool = False, **options: object) -> Evaluator:
    """Candidates for a problem on its search split; a `hasty` one is for what has to be stopped."""
    limits = SMALL if hasty else AMPLE
    return Evaluator(
        PROBLEMS / name, "train", specification(name)["entry"], limits=limits, workers=2, options=options
    )  # fmt: skip


def mean(problem: Any, function: Callable[..., object], instances: Sequence[Any], shift: int = 0) -> float:
    """Mean objective of `function`, with seeds that are `shift` away from the usual ones."""
    total = 0.0
    for instance in instances:
        instance.seed += shift
        total += problem.objective(problem.solve(function, instance), instance)
    return total / len(instances)


def attacked(evaluator: Evaluator, attack: str, good: str) -> Evaluation:
    """What becomes of a good heuristic with an attack before it."""
    return evaluator.evaluate(f"{attack}\n\n{good}")
