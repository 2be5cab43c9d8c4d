"""What a candidate costs: forked from a zygote, against a fresh interpreter that imports numpy and the problem.

The candidate returns at once, so only the cost of isolation is left.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from coevo.machine.places import interpreter
from coevo.sandbox import Sandbox

_PROBLEM = """
import numpy as np

def instances(split):
    return list(np.random.RandomState(1234).rand(64, 50, 2))

def solve(function, instance):
    return function(instance)

def objective(solution, instance):
    return float(solution)
"""
_CANDIDATE = "def answer(instance):\n    return 0\n"
_FRESH = """
import json, runpy, sys
problem = runpy.run_path(sys.argv[1])
space = {}
exec(compile(sys.stdin.read(), "<candidate>", "exec"), space)
print(json.dumps([problem["solve"](space["answer"], instance) for instance in problem["instances"]("train")]))
"""


def bench_sandbox(rounds: int = 5, candidates: int = 10) -> dict[str, float]:
    """Time `candidates` of each kind in each of `rounds`, in turn so that a busy machine slows both.

    Returns:
        `zygote_seconds` and `fresh_seconds` per candidate, medians over all; `ratio`, the median over the
        rounds of fresh over zygote; `start_seconds`, what the zygote costs once.
    """
    zygote: list[list[float]] = []
    fresh: list[list[float]] = []
    with tempfile.TemporaryDirectory() as folder:
        problem = Path(folder, "evaluate.py")
        problem.write_text(_PROBLEM, encoding="utf-8")
        # The sandbox's user has to read it where it cannot be shown to it otherwise.
        os.chmod(folder, 0o755)
        began = time.perf_counter()
        with Sandbox(problem, "train", entry="answer", workers=1) as sandbox:
            start = time.perf_counter() - began
            for _ in range(rounds):
                zygote.append([_time_zygote(sandbox) for _ in range(candidates)])
                fresh.append([_time_fresh(problem) for _ in range(candidates)])
    ratios = [statistics.median(slow) / statistics.median(fast) for slow, fast in zip(fresh, zygote, strict=True)]
    return {
        "ratio": statistics.median(ratios),
        "zygote_seconds": statistics.median(itertools.chain.from_iterable(zygote)),
        "fresh_seconds": statistics.median(itertools.chain.from_iterable(fresh)),
        "start_seconds": start,
    }


def _time_zygote(sandbox: Sandbox) -> float:
    began = time.perf_counter()
    outcome = sandbox.run(_CANDIDATE)
    seconds = time.perf_counter() - began
    if outcome.status != "ok":
        raise RuntimeError(f"the candidate ended with {outcome.status!r}: {outcome.message}")
    return seconds


def _time_fresh(problem: Path) -> float:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if os.path.isabs(entry)),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    began = time.perf_counter()
    subprocess.run(
        [interpreter(), "-c", _FRESH, str(problem)],
        input=_CANDIDATE.encode(),
        env=environment,
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - began
