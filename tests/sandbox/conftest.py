from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coevo.sandbox import Evaluator, Limits

PROBLEM = Path(__file__).parents[2] / "tasks/coevo_heuristics/problems/tsp_construct"
NEAREST = 7.00437
LIMITS = Limits(cpu_seconds=0.8, wall_seconds=2.5, memory_mb=128, output_kb=1024, file_mb=16, processes=16)

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="session")
def problem() -> Path:
    return PROBLEM


@pytest.fixture(scope="session")
def good() -> str:
    return (PROBLEM / "template.py").read_text("utf-8")


def expression(text: str) -> str:
    """The module that the expression hole gives for `text`."""
    return (PROBLEM / "template_expression.py").read_text("utf-8").replace("d_current  # coevo: hole", text)


@pytest.fixture(scope="session")
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(PROBLEM, "train", "select_next_node", limits=LIMITS, workers=2) as evaluator:
        yield evaluator


@pytest.fixture(scope="session")
def plain_evaluator() -> Iterator[Evaluator]:
    """What is left on a system without namespaces."""
    with Evaluator(PROBLEM, "train", "select_next_node", limits=LIMITS, workers=2, namespaces=False) as evaluator:
        yield evaluator


def sandbox_processes(run: int | None = None) -> list[int]:
    """Processes that stem from a sandbox of process `run`: a fork keeps the command line of its zygote."""
    mark = b"coevo.sandbox.zygote"
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if mark in words and words[-2] == str(run or os.getpid()).encode():
            found.append(int(name))
    return found
