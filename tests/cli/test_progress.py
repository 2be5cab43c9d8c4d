"""The logger `progress`: plain lines in a pipe, a live view in a terminal that is left clean."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from coevo import BatchReport, GenerationReport, Rollout, RunInfo, Trajectory
from coevo.records import Provenance
from coevo.reports import Best
from coevo_progress.logger import Progress
from coevo_progress.state import State, batch_line, clock
from coevo_progress.view import View

COEVO = [sys.executable, "-c", "import sys; from coevo.cli import main; sys.exit(main())"]
INFO = RunInfo(
    "a", "runs/a", {"task": "tsp", "param": "es", "context": "eoh"}, 0, 4,
    reference=("optimal", 5.0), baseline=("nearest", 7.0), machine={"device": "cpu"},
)  # fmt: skip


def rollout(objective=None, batch=0):
    provenance = Provenance(0, batch, 0, 0, 1, 0.1, 0, "c", "e", 0, 1, "p", "m1")
    metrics = {} if objective is None else {"objective": objective}
    status = "syntax" if objective is None else "ok"
    worth = None if objective is None else -objective
    return Rollout(provenance, status, worth, Trajectory(), None, metrics, prompt_tokens=10, completion_tokens=5)


def report(generation=0, batch=0, zero="", metrics=None, best=6.0):
    metrics = {"sigma": 2e-3, "moved": 0.62, "informative": 15.0, "variance_ratio": 1.3} if metrics is None else metrics
    return BatchReport(
        generation, batch, "m1", "search", True, 16, {"ok": 3, "syntax": 1}, (6.0, 7.0, 8.0),
        Best("r", 0, 0, -best, best), metrics, zero, "d", 4, 40, 20, 2.0,
    )  # fmt: skip


def test_a_batch_line_says_that_its_mean_leaves_out_what_was_outraced():
    raced = replace(report(), statuses={"ok": 3, "outraced": 2})
    assert "mean 7 (without 2 outraced), " in batch_line(raced, INFO)
    assert "without" not in batch_line(report(), INFO)


def test_a_batch_in_one_line():
    assert batch_line(report(), INFO) == (
        "generation 1/4 m1: 4 answers, 75 % valid, best 6, gap 20.00 % to optimal, beats nearest (7), mean 7, "
        "sigma 0.002, moved 62 %, informative 15/16, between/within variance 1.30, 30 tokens/s, 0:02"
    )


def test_a_zero_update_shows_its_reason():
    line = batch_line(report(zero="all credits are equal", metrics={}), INFO)
    assert line.endswith("0:02; weights did not move: all credits are equal")


def test_the_view_knows_how_far_a_batch_and_the_run_are():
    now = [0.0]
    state = State(INFO, clock=lambda: now[0])
    assert state.remaining() is None
    state.rollouts(0, [rollout(6.5), rollout()])
    assert (state.tally.done, state.tally.valid, state.best_now(), state.expected()) == (2, 1, 6.5, None)
    now[0] = 10.0
    state.batch(report())
    state.finished(GenerationReport(0, (report(),), None))
    assert state.remaining() == 30.0
    state.rollouts(1, [rollout(5.5)])
    assert (state.expected(), state.best_now(), state.generation) == (4, 5.5, 1)
    console = Console(file=io.StringIO(), width=100)
    console.print(View(state, console).render())
    shown = console.file.getvalue()
    for words in ("2/4, operator m1", "1/4 answers, 100 % valid", "5.5, gap 10.00 % to optimal, beats nearest (7)",
                  "moved 62 %", "0:10 elapsed, about 0:30 left"):  # fmt: skip
        assert words in shown


def test_the_view_says_that_the_weights_did_not_move():
    state = State(INFO)
    state.batch(report(zero="sigma is 0"))
    console = Console(file=io.StringIO(), width=100)
    console.print(View(state, console).render())
    assert "did not move: sigma is 0" in console.file.getvalue()


def test_a_probe_tells_what_the_centre_answers_now_and_at_first():
    state = State(INFO)
    probed = replace(report(), generation=0, purpose="probe", members=0)
    assert state.probe(probed) == (
        "probe of the centre after 0 generations: 4 answers, 75 % valid, 25 % better than the baseline, "
        "score 0.480, 0:02"
    )
    line = state.probe(replace(probed, generation=5, statuses={"ok": 4}, objectives=(6.0, 6.0, 6.0, 7.0)))
    assert line.startswith("probe of the centre after 5 generations: 4 answers, 100 % valid, 75 % better")
    assert "(at first 75 % valid, 25 % better than the baseline, score 0.480)" in line
    console = Console(file=io.StringIO(), width=200)
    console.print(View(state, console).render())
    assert "at first 75 % valid" in console.file.getvalue()


def test_the_rollouts_of_a_probe_are_not_counted_for_the_batch():
    state = State(INFO)
    asked = rollout(6.5)
    state.rollouts(0, [replace(asked, provenance=replace(asked.provenance, purpose="probe"))])
    assert state.tally.done == 0


def test_observers_may_come_in_any_order_or_not_at_all():
    progress = Progress(console=Console(file=io.StringIO(), width=20))
    progress.rollouts_finished(0, [rollout(1.0)])
    progress.batch_finished(report())
    progress.generation_finished(GenerationReport(0, (), None))
    progress.run_finished()
    progress.run_started(INFO)
    progress.batch_finished(report())
    progress.run_finished()
    progress.run_finished()
    assert progress._console.file.getvalue().count("\n") == 2


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (7, "0:07"), (725, "12:05"), (11525, "3:12:05")])
def test_durations(seconds, text):
    assert clock(seconds) == text


def test_a_pipe_gets_a_line_a_batch_and_no_control_characters(coevo, small):
    out = coevo("run", *small, "--generations", "2", "--name", "a")[1]
    assert "\x1b" not in out
    lines = out.splitlines()
    assert lines[0] == "run a in runs/a: task aim, param es, context fixed; device numpy, dtype float32"
    assert lines[1].startswith("probe of the centre after 0 generations: 63 answers, ")
    assert [line[:14] for line in lines[2:6]] == ["generation 1/2"] * 2 + ["generation 2/2"] * 2
    assert lines[6].startswith("probe of the centre after 2 generations: 63 answers, ")
    assert "(at first " in lines[6]


@pytest.mark.parametrize("interrupt", [False, True], ids=["to its end", "Ctrl-C"])
def test_a_terminal_is_left_clean(small, tmp_path, interrupt):
    ours, theirs = pty.openpty()
    options = ["--set", "numbers.delay=0.05", "--generations", "30" if interrupt else "2", "--population", "4"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    run = subprocess.Popen(
        [*COEVO, "run", *small, *options, "--name", "a"],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, env=environment,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    asked = False
    stop = time.monotonic() + 180
    while time.monotonic() < stop:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not part:
            break
        seen += part
        if interrupt and not asked and b"generation 1/30" in seen and b"elapsed" in seen:
            run.send_signal(signal.SIGINT)
            asked = True
    os.close(ours)
    assert run.wait(timeout=180) == (130 if interrupt else 0)
    assert b"elapsed" in seen
    assert b"\\x1b" not in seen  # its own movements move
    # Hidden while it draws, shown again at the end, and nothing is drawn after that.
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")
    after = seen[seen.rindex(b"\x1b[?25h") :]
    assert b"elapsed" not in after
    assert (b"coevo resume a" in after) if interrupt else (b"look further" in after)
    assert Path(tmp_path / "runs/a").is_dir()
