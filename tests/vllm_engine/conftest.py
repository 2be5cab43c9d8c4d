"""Real vLLM on this machine's CPU (or GPU); without it these tests are skipped: `make test-vllm` installs it.

A process imports vLLM once, which takes most of the time, and ends all its engines with the first: they are shared
within a module and closed after it. (Until then vLLM goes by the environment of the first, so one that is shared by two
workers cannot be started besides.)
"""

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


@pytest.fixture(scope="module")
def engine(make_vllm, tiny):
    """With the defaults."""
    return make_vllm(tiny)


@pytest.fixture(scope="module")
def stepping(make_vllm, tiny, engine):
    """In step, and with weights that are held in the other way than the default's, where this processor has one.

    A format that the processor does not multiply is not packed; float32 is packed by every one.
    """
    return make_vllm(tiny, dtype="float16" if engine._session.weights.packed else "float32", rolling=False)


@pytest.fixture(autouse=True)
def quiet_vllm():
    """vLLM and what it brings warn of themselves in threads of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
