"""A run to report on, and the command line in this process."""

import sys
from pathlib import Path

import pytest

from coevo.cli import main

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


@pytest.fixture
def coevo(capsys):
    """Run a command line in this process; gives (exit code, standard output, standard error)."""

    def call(*arguments):
        capsys.readouterr()
        code = main(list(map(str, arguments)))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
