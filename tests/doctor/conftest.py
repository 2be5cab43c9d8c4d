"""The doctor looks at an empty folder and an empty cache of models."""

import sys
from pathlib import Path

import pytest

from tests.tiny_llama import save_tiny_llama

HERE = Path(__file__).parent
ENGINES = str(HERE / "engines.py")


@pytest.fixture(autouse=True)
def _here(in_empty_folder):
    pass


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a tiny random Llama."""
    return str(save_tiny_llama(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder that packages are imported from, in child processes too."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(str(folder))]:
        del sys.modules[name]  # another test has another module of this name
