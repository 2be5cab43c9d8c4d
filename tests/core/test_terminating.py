"""SIGTERM ends a run whatever is being computed, with the exit code of an interrupt, and the run can be resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fakes
import pytest

PATIENCE_SECONDS = 120
# In the process of the command line, so that a test need not wait as long as a user's engine may take to close.
COEVO = (
    "import sys; from coevo.machine import interrupts; interrupts.GRACE_SECONDS = {grace}; from coevo.cli import main; "
)
COEVO += "sys.exit(main())"

STUCK = '''
import time
from pathlib import Path

import coevo
from coevo.records import EpisodeResult, Example


def never_returns(*_):
    Path("begun").touch()
    while True:
        try:
            time.sleep(0.01)
        except KeyboardInterrupt:
            pass


class Episode:
    asked = False

    def __init__(self, where, split):
        self.where, self.split = where, split

    def requests(self):
        asked, self.asked = self.asked, True
        return [] if asked else [coevo.Request(({"role": "user", "content": "say 0"},))]

    def step(self, completions):
        if self.where == "step":
            never_returns()

    def result(self):
        if self.where == "result" or (self.where == "held-out" and self.split == "test"):
            never_returns()
        return EpisodeResult("ok", 1.0, {"objective": 1.0}, {"answer": "x", "code_key": "x"})


class StuckTask:
    """Hangs for ever at one place, and will not be interrupted there."""

    def __init__(self, *, where: str):
        self.where = where

    def brief(self):
        return coevo.Brief("stuck", "Stuck", "Say 0.", hole="expression", components={"prompt": "Say 0."})

    def examples(self, split):
        if split not in ("train", "test"):
            raise ValueError(split)
        return [Example(split)]

    def episode(self, example, context):
        return Episode(self.where, example.id)


@coevo.hookimpl
def register_tasks(tasks):
    tasks.register("stuck", StuckTask)
'''


COUNTING = """
import coevo
import search_kit

@coevo.hookimpl
def register_engines(engines):
    engines.register("counting", search_kit.CountingEngine)
"""


def until(condition, process=None):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def ended(process):
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130, said
    assert said.strip().splitlines()[-1] == "coevo: interrupted; go on with: coevo resume a"
    assert "Traceback" not in said


def begin(place, *arguments, grace=1.0):
    environment = {"COEVO_CACHE": str(place / "cache"), "PYTHONPATH": str(Path(fakes.__file__).parent)}
    return subprocess.Popen(
        [sys.executable, "-c", COEVO.format(grace=grace), *arguments], cwd=place, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, env=os.environ | environment,
    )  # fmt: skip


@pytest.mark.parametrize("where", ["result", "step", "held-out"])
def test_a_task_that_never_returns_does_not_keep_a_run_from_ending(tmp_path, where):
    (tmp_path / "stuck.py").write_text(STUCK, "utf-8")
    process = begin(
        tmp_path, "run", "--plugin", fakes.__file__, "--plugin", "stuck.py", "--task", "stuck", "--engine", "numbers",
        "--param", "none", "--context", "sample", "--generations", "1", "--name", "a", "--quiet",
        "--set", f"stuck.where={where}", "--set", "sample.batch=2",
    )  # fmt: skip
    try:
        until((tmp_path / "begun").exists, process)
        process.send_signal(signal.SIGTERM)
        ended(process)
    finally:
        process.kill()
    shown = subprocess.run(
        [sys.executable, "-m", "coevo", "show", "a", "--json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert json.loads(shown.stdout)["status"] == "interrupted"


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once_what_a_judge_that_never_returns_would_keep(tmp_path, second):
    (tmp_path / "stuck.py").write_text(STUCK, "utf-8")
    process = begin(
        tmp_path, "run", "--plugin", fakes.__file__, "--plugin", "stuck.py", "--task", "stuck", "--engine", "numbers",
        "--param", "none", "--context", "sample", "--generations", "1", "--name", "a", "--quiet",
        "--set", "stuck.where=result", grace=10 * PATIENCE_SECONDS,
    )  # fmt: skip
    try:
        until((tmp_path / "begun").exists, process)
        process.send_signal(signal.SIGTERM)
        assert process.stderr.readline() == "coevo: interrupted; go on with: coevo resume a\n"
        process.send_signal(second)
        _, rest = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, rest) == (130, "")


# The seed is valued at once; what the engine answers is not the seed.
ENDLESS = """
import itertools
from pathlib import Path

def instances(split):
    return [1.0]

def solve(function, instance):
    return function(instance)

def objective(solution, instance):
    if solution != 7:
        Path({begun!r}).touch()
        max(itertools.count())
    return float(solution)
"""
TABLE = """
name = "endless"
title = "Endless"
direction = "minimize"
entry = "f"
description = "Give a number."

[splits]
train = "train"

[limits]
author_seconds = 100000.0

[holes.expression]
template = "template.py"
replace = "7  # coevo: hole"
signature = "score ="
arguments = [["x", "a number"]]
returns = "a number"
examples = ["x"]
"""


def test_an_objective_that_never_ends_does_not_keep_a_run_from_ending_and_no_process_is_left(tmp_path):
    folder, begun = tmp_path / "endless", tmp_path / "begun"
    folder.mkdir()
    (folder / "problem.toml").write_text(TABLE, "utf-8")
    (folder / "evaluate.py").write_text(ENDLESS.format(begun=str(begun)), "utf-8")
    (folder / "template.py").write_text("def f(x):\n    score = 7  # coevo: hole\n    return score\n", "utf-8")
    (tmp_path / "counting.py").write_text(COUNTING, "utf-8")
    process = begin(
        tmp_path, "run", "--plugin", "counting.py", "--task", "endless", "--engine", "counting", "--param", "none",
        "--context", "sample", "--generations", "1", "--name", "a", "--quiet", "--set", 'counting.always="3"',
    )  # fmt: skip
    try:
        until(begun.exists, process)
        process.send_signal(signal.SIGTERM)
        ended(process)
    finally:
        process.kill()
    until(lambda: not left_by(process.pid))


def left_by(run):
    """Processes that stem from process `run`: a fork keeps the command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(b"coevo.sandbox.") for word in words) and str(run).encode() in words:
            found.append(path)
    return found
