"""Whole runs through the command line: the bits of a single engine, whoever is killed on the way.

On the real engine with a tiny random Llama, with a Ray of the run's own.
"""

import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import fakes
import pytest

from coevo.runs.chunks import read_chunks
from coevo.runs.folder import RunFolder
from coevo_ray.watcher import below
from tests.ray_engine.ray_kit import PATIENCE_SECONDS, call, committed, rollouts, small_run, start
from tests.tiny_llama import save_tiny_llama

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
POOL = ("--engine", "ray", "--set", "ray.workers=2", "--set", "ray.options.threads=1")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    save_tiny_llama(folder / "model")
    return folder


def run_arguments(name, *more, seconds=0.0):
    sets = {
        "es.population": 4, "es.sigma": 0.05, "es.alpha": 0.05, "rollouts.chunk": 3, "letters.seconds": seconds,
        "probe.every": 0,
    }  # fmt: skip
    return [
        "run", "--plugin", fakes.__file__, "--task", "letters", "--context", "fixed", "--param", "es",
        "--model", "model", "--generations", "2", "--seed", "7", "--name", name, "--quiet",
        *(part for key, value in sets.items() for part in ("--set", f"{key}={value}")), *more,
    ]  # fmt: skip


def wait_for(condition, seconds=PATIENCE_SECONDS):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return found


def title(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def workers(driver):
    return [pid for pid in below(driver) if title(pid).startswith("ray::Worker")]


def listening(pids):
    """Addresses on which some processes listen, in the kernel's hexadecimal."""
    theirs = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                theirs.add(os.readlink(link))
            except OSError:
                continue  # it was closed meanwhile
    lines = [
        line.split() for file in ("tcp", "tcp6") for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]
    ]
    return {line[1].partition(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in theirs}


def of_ray(pids):
    """Titles of the processes among `pids` that are Ray's and alive."""
    return {pid: said for pid in pids if "ray" in (said := title(pid))}


def ray_folders(pids):
    """The folders of the Rays that some processes belong to (other tests may have a Ray of their own meanwhile)."""
    return {Path(folder) for pid in pids for folder in re.findall(r"/[^\s=:]*/coevo-ray-[^/\s:]+", title(pid))}


@pytest.fixture(scope="module")
def whole(place):
    """The run on one engine."""
    code, _, err = call(place, *run_arguments("whole", "--set", "transformers.threads=1"))
    assert code == 0, err
    return RunFolder(place / "runs" / "whole")


@pytest.fixture(scope="module")
def struck(place, whole):
    """The run on two workers, one of which is killed in the middle of a batch."""
    process = start(place, *run_arguments("struck", *POOL, seconds=0.03))
    folder = RunFolder(place / "runs" / "struck")
    wait_for(lambda: folder.chunk_file(0, 1).exists() and len(read_chunks(folder.chunk_file(0, 1))) >= 2)
    family = below(process.pid)
    homes = ray_folders(family)
    assert all(home.is_dir() for home in homes)
    addresses = listening([process.pid, *family])
    victim = workers(process.pid)[1]
    os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return {
        "code": process.returncode, "out": out, "err": err, "folder": folder, "victim": victim,
        "addresses": addresses, "family": family, "homes": homes,
    }  # fmt: skip


def test_a_run_whose_worker_is_killed_has_the_journal_and_rollouts_of_a_single_engine(whole, struck):
    assert struck["code"] == 0, struck["err"]
    assert committed(struck["folder"]) == committed(whole)
    made = rollouts(struck["folder"])
    assert made == rollouts(whole)
    numbers = [json.dumps(rollout["provenance"], sort_keys=True) for rollout in made]
    assert len(set(numbers)) == len(numbers) == 2 * (6 + 4 * 6)


def test_it_says_who_died_and_nothing_else(struck):
    (line,) = struck["err"].splitlines()
    assert line.startswith("coevo: note: worker ")
    assert f"(process {struck['victim']} on {os.uname().nodename}) died and is started again" in line
    assert struck["out"].startswith("run struck: finished")
    assert "ray::" not in struck["out"]
    assert "(raylet)" not in struck["out"]


def test_a_local_ray_listens_on_loopback_alone(struck):
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert struck["addresses"]
    assert struck["addresses"] <= loopback


def test_nothing_of_a_local_ray_is_left(struck):
    assert of_ray(struck["family"]) == {}
    (home,) = struck["homes"]
    assert not home.exists()


def test_its_weights_are_replayed_and_exported(place, struck):
    code, out, err = call(place, "replay", "struck", "--json")
    assert code == 0, err
    last = committed(struck["folder"])[-1]
    assert json.loads(out)["weights_digest"] == last["digest"]
    code, _, err = call(place, "export", "struck", "--out", "exported")
    assert code == 0, err
    assert (place / "exported" / "model.safetensors").is_file()
    assert json.loads((place / "exported" / "coevo-export.json").read_text())["weights_digest"] == last["digest"]


def test_a_driver_that_is_killed_or_interrupted_leaves_no_process_and_its_run_is_resumed(place):
    code, _, err = call(place, *small_run("whole-small", "numbers", {}))
    assert code == 0, err
    folder, whole = (RunFolder(place / "runs" / name) for name in ("cut", "whole-small"))
    process = start(place, *small_run("cut", "ray", {"engine": "numbers", "options.delay": 0.2}))
    wait_for(lambda: folder.chunk_file(0, 1).exists() and len(read_chunks(folder.chunk_file(0, 1))) >= 2)
    family = below(process.pid)
    assert len(workers(process.pid)) == 2
    (home,) = ray_folders(family)
    process.kill()
    process.communicate()
    # Ray's own helpers would stay for a minute.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (left := of_ray(family)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == {}
    wait_for(lambda: not home.exists())

    process = start(place, "resume", "cut", "--quiet")
    wait_for(lambda: folder.chunk_file(1, 1).exists() and len(read_chunks(folder.chunk_file(1, 1))) >= 2)
    family = below(process.pid)
    (home,) = ray_folders(family)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (130, "coevo: interrupted; go on with: coevo resume cut\n")
    assert of_ray(family) == {}
    assert not home.exists()

    code, _, err = call(place, "resume", "cut", "--quiet")
    assert (code, err) == (0, "")
    assert committed(folder) == committed(whole)
    assert rollouts(folder) == rollouts(whole)
