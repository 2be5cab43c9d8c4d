"""`kill -9` at any moment loses at most the chunks in flight, leaves no process, and resumes to the last bit.

Through the real command line, on the real engine with a tiny random Llama.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fakes
import pytest
from tiny_llama import save_tiny_llama

from coevo.runs.chunks import read_chunks
from coevo.runs.codec import to_json
from coevo.runs.folder import RunFolder

PATIENCE_SECONDS = 300


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kill")
    save_tiny_llama(folder / "model")
    return folder


def command(*arguments):
    return [sys.executable, "-m", "coevo", *arguments]


def run_arguments(name, seconds=0.0):
    sets = {
        "es.population": 4, "es.sigma": 0.05, "es.alpha": 0.05, "rollouts.chunk": 3, "letters.seconds": seconds,
    }  # fmt: skip
    return [
        "run", "--plugin", fakes.__file__, "--task", "letters", "--context", "fixed", "--param", "es",
        "--model", "model", "--generations", "3", "--seed", "7", "--name", name, "--quiet",
        *(part for key, value in sets.items() for part in ("--set", f"{key}={value}")),
    ]  # fmt: skip


def call(place, *arguments):
    return subprocess.run(command(*arguments), cwd=place, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def whole(place):
    done = call(place, *run_arguments("whole"))
    assert done.returncode == 0, done.stderr
    return RunFolder(place / "runs" / "whole")


def without_time(value):
    if isinstance(value, dict):
        return {k: without_time(v) for k, v in value.items() if k not in ("time", "check")}
    return [without_time(v) for v in value] if isinstance(value, list) else value


def committed(folder):
    return [without_time(line) for line in folder.journal.lines() if line["kind"] != "stop"]


def rollouts(folder):
    files = sorted((folder.path / "rollouts").iterdir())
    return [without_time(to_json(r)) for file in files for chunk in read_chunks(file) for r in chunk]


def processes_of_session(session):
    """Pids of living (not zombie) processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def wait_for(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_run_leaves_no_process_and_resumes_to_the_same_bits(place, whole):
    process = subprocess.Popen(command(*run_arguments("cut", 0.03)), cwd=place, start_new_session=True)
    folder = RunFolder(place / "runs" / "cut")
    file = folder.chunk_file(1, 1)
    wait_for(lambda: len(read_chunks(file)) >= 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not processes_of_session(process.pid))
    shown = json.loads(call(place, "show", "cut", "--json").stdout)
    assert shown["status"] == "interrupted"
    assert len(committed(folder)) < len(committed(whole))
    resumed = call(place, "resume", "cut")
    assert resumed.returncode == 0, resumed.stderr
    assert committed(folder) == committed(whole)
    assert rollouts(folder) == rollouts(whole)


def test_a_run_that_is_going_cannot_be_resumed_a_second_time(place):
    process = subprocess.Popen(command(*run_arguments("busy", 0.2)), cwd=place)
    try:
        folder = RunFolder(place / "runs" / "busy")
        wait_for(folder.is_locked)
        second = call(place, "resume", "busy")
        assert second.returncode == 2
        assert second.stderr.startswith("coevo: run 'busy' is going in process ")
        assert second.stderr.count("\n") == 1
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_cleanly_and_says_how_to_go_on(place, number):
    name = f"stopped-{number}"
    process = subprocess.Popen(command(*run_arguments(name, 0.05)), cwd=place, stderr=subprocess.PIPE, text=True)
    folder = RunFolder(place / "runs" / name)
    wait_for(lambda: folder.chunk_file(0, 1).exists())
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert said.strip().splitlines()[-1] == f"coevo: interrupted; go on with: coevo resume {name}"
    assert "Traceback" not in said
    assert json.loads(call(place, "show", name, "--json").stdout)["status"] == "interrupted"


def test_the_weights_of_a_run_are_replayed_from_its_journal(place, whole):
    done = call(place, "replay", "whole", "--json")
    assert done.returncode == 0, done.stderr
    last = list(whole.journal.lines())[-2]
    assert json.loads(done.stdout)["weights_digest"] == last["digest"]
    assert last["digest"] != whole.journal.history().base["digest"]


def test_a_coefficient_changed_by_one_float32_ulp_is_found_by_the_weights_themselves(place, whole):
    import numpy as np

    from coevo.runs.journal import check_of

    copy = place / "runs" / "changed"
    copy.mkdir()
    for name in ("config.toml", "run.json"):
        (copy / name).write_text((whole.path / name).read_text())
    lines = list(whole.journal.lines())
    victim = next(line for line in lines if line["kind"] == "batch" and line["update"])
    seed, coefficient = victim["update"]["terms"][0]
    victim["update"]["terms"][0] = [seed, float(np.nextafter(np.float32(coefficient), np.float32(9)))]
    previous = ""
    for line in lines:
        line["previous"] = previous
        line["check"] = check_of(line)
        previous = previous if line["kind"] == "stop" else line["check"]
    (copy / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = call(place, "replay", "changed")
    assert done.returncode == 1
    assert f"batch {victim['batch']} of generation {victim['generation']}" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def anchored(place):
    """A run of the same configuration as `whole` that wrote an anchor after every update."""
    assert call(place, *run_arguments("anchored"), "--set", "anchor_seconds=1e-9").returncode == 0
    return place / "runs" / "anchored"


@pytest.mark.parametrize("damage", ["no", "the newest anchor is damaged", "all anchors are damaged"])
def test_a_run_goes_on_from_its_anchors_and_passes_over_damaged_ones(place, whole, anchored, damage):
    name = f"anchored-{damage.count(' ')}"
    folder = RunFolder(Path(shutil.copytree(anchored, place / "runs" / name)))
    lines = folder.journal.path.read_text().splitlines(keepends=True)
    folder.journal.path.write_text("".join(lines[:6]))  # base, the first probe and four batches
    for number in range(2):
        folder.chunk_file(2, number).unlink()
    folder.chunk_file(3, 0, probe=True).unlink()
    digests = [json.loads(line)["digest"] for line in lines[:6]]
    anchors = [folder.path / "anchors" / f"{digest}.safetensors" for digest in (digests[3], digests[5])]
    assert all(anchor.exists() for anchor in anchors)
    for anchor in {"no": [], "the newest anchor is damaged": anchors[1:]}.get(damage, anchors):
        data = bytearray(anchor.read_bytes())
        data[-5] ^= 1
        anchor.write_bytes(bytes(data))
    resumed = call(place, "resume", name, "--trust")  # a copy is a run from elsewhere
    assert resumed.returncode == 0, resumed.stderr
    assert committed(folder) == committed(whole)
