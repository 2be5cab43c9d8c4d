"""A run to report on."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def rich(tmp_path_factory):
    from report_kit import rich_run

    return rich_run(tmp_path_factory.mktemp("runs") / "rich")


@pytest.fixture(scope="session")
def written(rich):
    """Its report, written once."""
    from coevo.report import run_report

    return run_report.write(rich)
