"""A problem folder of the user's own to break: the one that `coevo new problem` writes."""

from pathlib import Path

import pytest

from coevo.tools.scaffold import new_problem
from coevo_heuristics.checking import Check


@pytest.fixture(autouse=True)
def _here(in_empty_folder):
    pass


@pytest.fixture
def hall():
    """The folder of a problem that is as it should be, with limits that are soon reached."""
    table, *_ = new_problem("hall")
    text = table.read_text()
    assert text.count("cpu_seconds = 5.0\nmemory_mb = 256") == 1
    table.write_text(text.replace("cpu_seconds = 5.0\nmemory_mb = 256", "cpu_seconds = 1.5\nmemory_mb = 64"))
    return table.parent


@pytest.fixture
def change(hall):
    """Replace a text of a file of the folder, which must be there."""

    def call(file, old, new):
        path = Path(hall, file)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return call


@pytest.fixture
def checked(hall):
    """Check the folder up to the last candidate, or `to` the end; gives the rows by name."""

    def call(to="after all that"):
        rows = []
        for row in Check(hall, workers=2).rows():
            rows.append(row)
            if row.name.endswith(to):
                break
        assert len({row.name for row in rows}) == len(rows)
        return {row.name: row for row in rows}

    return call
