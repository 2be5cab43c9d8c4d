"""Real vLLM on this machine's CPU (or GPU); without it these tests are skipped: `make test-vllm` installs it."""

import importlib.util
import warnings

import pytest

from tests.tiny_llama import save_tiny_llama


def needs_vllm():
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("needs vLLM; make test-vllm installs it")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    pytest.importorskip("torch")
    # Heads of 32: vLLM on the CPU knows none of 16.
    return save_tiny_llama(tmp_path_factory.mktemp("models") / "tiny", width=128)


@pytest.fixture(scope="module")
def make_vllm():
    """Makes engines on real vLLM; they are closed at the end of the module."""
    needs_vllm()
    from coevo_vllm.engine import VllmEngine

    made = []

    def make(model, **options):
        engine = VllmEngine(str(model), **{"context": 512, "cache_gb": 1.0, **options})
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture(autouse=True)
def quiet_vllm():
    """vLLM and what it brings warn of themselves in threads of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
