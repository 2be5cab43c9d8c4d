"""Hostile candidates for problems whose candidate returns a matrix, and what their tests share."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import coevo_heuristics
from coevo.sandbox import Evaluator, Limits, load_problem

PROBLEMS = Path(coevo_heuristics.__file__).parent / "problems"
LIMITS = Limits(cpu_seconds=1.5, wall_seconds=8.0, memory_mb=256, output_kb=1024, file_mb=16, processes=16)

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
        'import os\nos.write(3, b\'{"status": "ok", "objective": 0.001, "value": 0.001}\\n\'); os._exit(0)',
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


def source(text: str) -> str:
    return f"import numpy as np\n{text}\n"


def module(name: str) -> Any:
    """The evaluate.py of a problem."""
    return cast(Any, load_problem(PROBLEMS / name / "evaluate.py"))


def specification(name: str) -> dict[str, Any]:
    return tomllib.loads((PROBLEMS / name / "problem.toml").read_text("utf-8"))


def text_of(name: str, file: str) -> str:
    return (PROBLEMS / name / file).read_text("utf-8")


def evaluator_of(name: str, entry: str, limits: Limits = LIMITS) -> Evaluator:
    return Evaluator(PROBLEMS / name, "train", entry, limits=limits, workers=2)


def values_of(name: str, reference: str) -> dict[str, float]:
    """Split → value of the references of one name."""
    found = {r["split"]: r["value"] for r in specification(name)["references"] if r["name"] == reference}
    assert found, reference
    return found


def mean(problem: Any, function: Callable[..., object], instances: Sequence[Any], shift: int = 0) -> float:
    """Mean objective of `function`, with seeds that are `shift` away from the usual ones."""
    total = 0.0
    for instance in instances:
        instance.seed += shift
        total += problem.objective(problem.solve(function, instance), instance)
    return total / len(instances)
