"""The TSP problem that comes with coevo, as a folder to copy and break, and a started task per hole."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import coevo_heuristics
from coevo_heuristics import HeuristicTask, from_folder

TSP = Path(coevo_heuristics.__file__).parent / "problems" / "tsp_construct"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the problem folder that a test may change."""
    copy = tmp_path / "my_tsp"
    shutil.copytree(TSP, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="session")
def expression_task() -> Iterator[HeuristicTask]:
    task = from_folder(TSP, hole="expression", workers=2)
    task.start()
    yield task
    task.close()


@pytest.fixture(scope="session")
def function_task() -> Iterator[HeuristicTask]:
    task = from_folder(TSP, hole="function", workers=2)
    task.start()
    yield task
    task.close()
