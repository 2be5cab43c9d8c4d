"""A Ray that is there already is joined, used and left."""

import os
import subprocess
import sys

import fakes
import pytest

import coevo_ray.cluster
from coevo.errors import UserError
from coevo.runs.folder import RunFolder
from coevo_ray.cluster import Cluster
from tests.ray_engine.ray_kit import call, committed, rollouts, small_run

PROGRAM = f"""
import coevo_ray.cluster  # for the variables that keep it on loopback; any Ray would do
ours = coevo_ray.cluster.Cluster("")
coevo_ray.cluster._started.clear()  # as if the program had started it
from coevo_ray import RayEngine
engine = RayEngine(plugins=[{fakes.__file__!r}], engine="numbers", workers=1)
told = engine.describe()["ray"].partition(",")[0]
engine.close()
print(told, ours.ray.is_initialized())
ours.close()
"""


@pytest.fixture
def address(cluster):
    """Of the tests' own Ray, as another process joins it."""
    return cluster.ray.get_runtime_context().gcs_address


@pytest.fixture
def environment():
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": coevo_ray.cluster._TOKEN}
    return {**os.environ, **token, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def test_a_run_joins_a_cluster_and_leaves_it_as_it_was(cluster, address, environment, tmp_path):
    code, _, err = call(tmp_path, *small_run("alone", "numbers", {}))
    assert (code, err) == (0, "")
    joined = small_run("joined", "ray", {"engine": "numbers", "address": f'"{address}"', "cpus": 0.25})
    code, _, err = call(tmp_path, *joined, environment=environment)
    assert (code, err) == (0, "")
    alone, other = (RunFolder(tmp_path / "runs" / name) for name in ("alone", "joined"))
    assert committed(other) == committed(alone)
    assert rollouts(other) == rollouts(alone)
    assert other.info()["describe"]["ray"].startswith(f"the cluster at {address}, version ")
    assert [node["Alive"] for node in cluster.ray.nodes()] == [True]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("127.0.0.1:1", "ray.address: cannot join the cluster at '127.0.0.1:1': "),
        ("127.0.0.1", "ray.address got '127.0.0.1': expected 'auto' or HOST:PORT of a cluster"),
        ("ray://127.0.0.1:1", "ray.address got 'ray://127.0.0.1:1': expected 'auto' or HOST:PORT of a cluster"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_one_line(tmp_path, wrong, message):
    arguments = small_run("a", "ray", {"engine": "numbers", "address": f'"{wrong}"'})
    code, out, err = call(tmp_path, *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(f"coevo: {message}")
    assert not (tmp_path / "runs").exists()


def test_a_process_that_is_connected_joins_no_other(cluster):
    with pytest.raises(UserError, match="this process is connected to Ray already; leave it out"):
        Cluster("127.0.0.1:1")


def test_a_ray_that_would_listen_on_more_than_loopback_is_not_started():
    code = "import ray, coevo_ray.cluster as c\ntry: c.Cluster('')\nexcept Exception as e: print(type(e).__name__, e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("UserError ray was imported before engine 'ray' was made")


def test_a_pool_uses_the_ray_that_a_program_has_started_and_leaves_it(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "the Ray of this process True"
