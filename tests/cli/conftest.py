"""Commands run in an empty folder, with coevo's own plugins and those of tests/fakes.py."""

import sys
from pathlib import Path

import pytest

FAKES = str(Path(__file__).parents[1] / "fakes.py")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _here(in_empty_folder):
    pass


@pytest.fixture
def small():
    """Arguments of a run that takes milliseconds."""
    return ["--plugin", FAKES, "--task", "aim", "--engine", "numbers", "--context", "fixed", "--set", "es.sigma=0.3"]
