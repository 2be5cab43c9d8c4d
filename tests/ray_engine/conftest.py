"""One Ray for all engines of a module; pools are made on it as on a Ray that was there before."""

import gc
import importlib.util
import warnings

import pytest

from tests.ray_engine import frail

if importlib.util.find_spec("ray") is None:  # not imported: Ray listens on loopback alone if the engine imports it
    pytest.skip("needs ray", allow_module_level=True)


@pytest.fixture(scope="module")
def cluster():
    from coevo_ray.cluster import Cluster

    cluster = Cluster("")
    yield cluster
    with warnings.catch_warnings():
        # Ray drops the handles of the processes that it has ended without asking how they ended.
        warnings.filterwarnings("ignore", "subprocess .* is still running", ResourceWarning)
        cluster.keep = False  # a worker died too often: the logs were kept for that
        cluster.close()
        gc.collect()


def make(folder, workers=2, restarts=3, **options):
    from coevo_ray import RayEngine

    folder.mkdir()
    return RayEngine(
        plugins=[frail.__file__], engine="frail", workers=workers, restarts=restarts, cpus=0.25, patience=60.0,
        options={"folder": str(folder), **options},
    )  # fmt: skip


@pytest.fixture(scope="module")
def shared(cluster, tmp_path_factory):
    """A pool for tests that leave its weights and its processes alone."""
    engine = make(tmp_path_factory.mktemp("shared") / "pool")
    yield engine
    engine.close()


@pytest.fixture
def pool(cluster, tmp_path):
    """Makes pools of engine `frail`, which are closed at the end."""
    made = []

    def another(**options):
        made.append(make(tmp_path / f"pool{len(made)}", **options))
        return made[-1]

    yield another
    for engine in made:
        engine.close()


@pytest.fixture
def logs(tmp_path):
    """What the workers of the only pool noted, a list a process, the first to begin first."""

    def read():
        files = sorted((tmp_path / "pool0").glob("*.log"), key=lambda file: int(file.stem))
        return [file.read_text().splitlines() for file in files]

    return read
