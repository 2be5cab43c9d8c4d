"""Studies in an empty folder, with coevo's own plugins and those of tests/fakes.py."""

import pytest
from study_kit import STUDY

from coevo.cli import main


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COEVO_PLUGINS", raising=False)
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def drawn():
    """Asked for by tests that look at the curves."""


@pytest.fixture(autouse=True)
def _no_curves(request, monkeypatch):
    # They take a second each.
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("coevo.study.output._draw", lambda *given: given[-1].write_text("drawn"))


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
def small(tmp_path):
    """A study's file of two arms and two seeds that takes milliseconds."""
    (tmp_path / "small.toml").write_text(STUDY)
    return "small.toml"
