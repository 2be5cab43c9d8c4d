"""Plans are made in an empty folder, with coevo's own plugins and the engines of `engines.py`."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
ENGINES = str(HERE / "engines.py")


@pytest.fixture(autouse=True)
def _here(in_empty_folder):
    pass


@pytest.fixture
def plan(coevo):
    """`coevo plan` with those engines."""

    def call(*arguments):
        return coevo("plan", "--plugin", ENGINES, *arguments)

    return call
