"""Tuning in an empty folder, with coevo's own plugins and those of tests/fakes.py."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
FAKES = str(HERE.parent / "fakes.py")


@pytest.fixture(autouse=True)
def _here(in_empty_folder):
    pass


@pytest.fixture
def small():
    """Arguments of a run, or of a tuning, that takes a second: one example, and luck that members share."""
    engines = str(HERE / "engines.py")
    return ["--plugin", FAKES, "--plugin", engines, "--task", "one", "--engine", "numbers", "--set", "context=fixed"]


@pytest.fixture
def chaotic(small):
    """The same with an engine whose sampling noise depends on the weights too, as a language model's does."""
    return [*small, "--engine", "chaotic"]
