"""For all tests: no network, OpenMP threads that sleep while they wait (CI shares its cores), and the command line."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent

# Before torch is loaded. Threads that spin on a busy machine slow the engine several times.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"
# What a test evaluates is neither taken from the user's cache nor left there.
os.environ["COEVO_EVALUATIONS"] = "off"

# Nor is it remembered for the user which code the tests were let run.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="coevo-state-")
os.environ.pop("COEVO_TRUST", None)
# Where neither namespaces nor another user are permitted, what the tests send is harmless enough.
os.environ["COEVO_WEAK_SANDBOX"] = "1"

# A slow machine is no failure of a law.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    """Where tests are dealt to processes, those of a file stay together, and all that start a Ray."""
    for item in items:
        place = item.path.relative_to(HERE)
        item.add_marker(pytest.mark.xdist_group("ray" if place.parts[0] == "ray_engine" else str(place)))


@pytest.fixture
def in_empty_folder(tmp_path, monkeypatch):
    """The working folder is new, and so is the cache of models; no plugin is left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COEVO_PLUGINS", raising=False)
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def coevo(capsys):
    """Run a command line in this process; gives (exit code, standard output, standard error)."""
    from coevo.cli import main

    def call(*arguments):
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call
