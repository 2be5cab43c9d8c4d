"""Studies in an empty folder, with coevo's own plugins and those of tests/fakes.py."""

import pytest
from study_kit import STUDY


@pytest.fixture(autouse=True)
def _here(in_empty_folder):
    pass


@pytest.fixture
def drawn():
    """Asked for by tests that look at the curves."""


@pytest.fixture(autouse=True)
def _no_curves(request, monkeypatch):
    # They take a second each.
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("coevo.tools.study.output._draw", lambda *given: given[-1].write_text("drawn"))


@pytest.fixture
def small(tmp_path):
    """A study's file of two arms and two seeds that takes milliseconds."""
    (tmp_path / "small.toml").write_text(STUDY)
    return "small.toml"
