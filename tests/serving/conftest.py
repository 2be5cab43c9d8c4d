"""Policies behind real HTTP, in this process."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cli")]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a tiny random Llama, bf16, tied."""
    pytest.importorskip("torch")
    from tiny_llama import save_tiny_llama

    return save_tiny_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def engine(tiny):
    """One float32 engine, whose master nobody moves."""
    pytest.importorskip("transformers")
    from coevo_transformers.engine import TransformersEngine

    made = TransformersEngine(str(tiny), dtype="float32", canary=False)
    yield made
    made.close()
