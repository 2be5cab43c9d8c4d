"""Commands run in an empty folder, with coevo's own plugins and those of tests/fakes.py."""

import sys
from pathlib import Path

import pytest

from coevo.cli import main

FAKES = str(Path(__file__).parents[1] / "fakes.py")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COEVO_PLUGINS", raising=False)
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def coevo(capsys):
    """Run a command line in this process; gives (exit code, standard output, standard error)."""

    def call(*arguments):
        capsys.readouterr()
        code = main(list(arguments))
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.fixture
def small():
    """Arguments of a run that takes milliseconds."""
    return ["--plugin", FAKES, "--task", "aim", "--engine", "numbers", "--context", "fixed", "--set", "es.sigma=0.3"]
