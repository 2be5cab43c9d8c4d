import os

import pytest

from tests.tiny_llama import save_tiny_llama

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the engine does, but torch is imported here already
pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder with a tiny random Llama, bf16, tied."""
    return save_tiny_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def shared_engine(tiny):
    """One float32 engine for tests that leave the master alone."""
    from coevo_transformers.engine import TransformersEngine

    engine = TransformersEngine(str(tiny), dtype="float32")
    yield engine
    engine.close()


@pytest.fixture
def new_engine(tiny):
    """Makes engines that are closed at the end."""
    from coevo_transformers.engine import TransformersEngine

    made = []

    def make(model=tiny, **options):
        engine = TransformersEngine(str(model), **{"dtype": "float32", "canary": False, **options})
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
