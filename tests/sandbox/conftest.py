from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coevo.sandbox import Evaluator
from tests.sandbox_limits import AMPLE, SMALL

PROBLEM = Path(__file__).parents[2] / "tasks/coevo_heuristics/problems/tsp_construct"
NEAREST = 7.00437
NEAREST_FIRST = 6.05124  # on the first instance

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


class Evaluators:
    """Evaluators for the problem, started as they are asked for."""

    def __init__(self) -> None:
        self._started: dict[tuple[bool, bool], Evaluator] = {}

    def __call__(self, status: str = "ok", *, namespaces: bool = True) -> Evaluator:
        """One for a candidate that ends with `status`: what has to be stopped gets one instance and small limits."""
        hasty = status == "timeout"
        if (hasty, namespaces) not in self._started:
            self._started[hasty, namespaces] = Evaluator(
                PROBLEM, "train", "select_next_node", limits=SMALL if hasty else AMPLE, workers=2,
                options={"count": 1} if hasty else {}, namespaces=namespaces,
            )  # fmt: skip
        return self._started[hasty, namespaces]

    def close(self) -> None:
        for evaluator in self._started.values():
            evaluator.close()


@pytest.fixture(scope="session")
def evaluators() -> Iterator[Evaluators]:
    found = Evaluators()
    yield found
    found.close()


@pytest.fixture(scope="session")
def evaluator(evaluators: Evaluators) -> Evaluator:
    return evaluators()


@pytest.fixture(scope="session")
def plain_evaluator(evaluators: Evaluators) -> Evaluator:
    """What is left on a system without namespaces."""
    return evaluators(namespaces=False)


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
