"""The sandbox as a process tree: its start, its end, and ends that nobody planned."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coevo.errors import RunError, UserError
from coevo.sandbox import Evaluator, Limits, Sandbox, wire
from tests.sandbox_limits import AMPLE

from .conftest import NEAREST, linux, sandbox_processes

TOY = """
def instances(split, count=2):
    if split != "train":
        raise ValueError(f"no split {split!r}")
    return [{"n": n} for n in range(count)]

def solve(function, instance):
    return function(instance["n"])

def objective(solution, instance):
    if not isinstance(solution, (int, float)):
        raise ValueError("no number")
    return solution
"""
ENDLESS = "import os\nif os.fork() == 0: os.setsid()\nwhile True: pass\n"


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    file = tmp_path / "evaluate.py"
    file.write_text(TOY, "utf-8")
    return file


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user can pass through, which `tmp_path` is not."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o711)
        yield Path(folder)


def until(true: Callable[[], bool], seconds: float = 120.0) -> bool:
    stop = time.monotonic() + seconds
    while not true():
        if time.monotonic() > stop:
            return False
        time.sleep(0.02)
    return True


def kill(pids: set[int]) -> None:
    for pid in pids:
        # The end of one may be the end of another.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


RUN = """
import sys, threading
from pathlib import Path
from coevo.sandbox import Limits, Sandbox
sandbox = Sandbox(Path(sys.argv[1]), "train", entry="f", limits=Limits(cpu_seconds=60), workers=2,
                  namespaces=sys.argv[2] == "True")
for _ in range(2):
    threading.Thread(target=sandbox.run, args=(sys.argv[3],)).start()
"""


@linux
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_killed_run_leaves_no_process_and_no_folder_behind(namespaces: bool, toy: Path, open_folder: Path) -> None:
    hostile = f"import ctypes\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n{ENDLESS}"
    environment = os.environ | {
        "TMPDIR": str(open_folder),
        "PYTHONPATH": os.pathsep.join(filter(os.path.isabs, sys.path)),
    }
    command = [sys.executable, "-c", RUN, str(toy), str(namespaces), hostile]
    with subprocess.Popen(command, env=environment) as run:
        try:
            assert until(lambda: len(sandbox_processes(run.pid)) >= 4)
        finally:
            run.send_signal(signal.SIGKILL)

    assert until(lambda: not sandbox_processes(run.pid))
    assert not list(open_folder.iterdir())


@linux
@pytest.mark.parametrize("namespaces", [True, False])
def test_close_ends_everything_and_the_waiting_run_says_so(namespaces: bool, toy: Path) -> None:
    before = sandbox_processes()
    sandbox = Sandbox(toy, "train", entry="f", workers=2, namespaces=namespaces)
    if not (sandbox.isolation["processes"] or sandbox.isolation["user"]):
        sandbox.close()
        pytest.skip("all processes of this user count against the limit of a candidate, so that a fork may be refused")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sandbox.run, ENDLESS)
        until(lambda: len(sandbox_processes()) >= len(before) + 4)
        sandbox.close()
        with pytest.raises(RuntimeError, match="closed"):
            waiting.result()

    assert sandbox_processes() == before
    with pytest.raises(RuntimeError, match="closed"):
        sandbox.run("")


@linux
def test_a_killed_zygote_is_started_again_and_its_candidates_run_again(toy: Path) -> None:
    before = set(sandbox_processes())
    with Sandbox(toy, "train", entry="f", workers=2) as sandbox, ThreadPoolExecutor(2) as pool:
        first = set(sandbox_processes()) - before
        source = "import time\ntime.sleep(0.5)\ndef f(n): return n\n"
        waiting = [pool.submit(sandbox.run, source) for _ in range(2)]
        until(lambda: len(set(sandbox_processes()) - before) >= 4)
        kill(first)

        assert [future.result().value for future in waiting] == [[0, 1], [0, 1]]
        assert not first & set(sandbox_processes())

    assert set(sandbox_processes()) == before


@linux
def test_a_candidate_during_which_the_zygote_dies_twice_is_an_exception(toy: Path) -> None:
    before = set(sandbox_processes())
    with Sandbox(toy, "train", entry="f", workers=1) as sandbox, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sandbox.run, ENDLESS)
        for _ in range(2):
            # Guardian, zygote, nursery, candidate, its child and `solve`: a zygote that starts has fewer.
            assert until(lambda: len(set(sandbox_processes()) - before) == 6)
            killed = set(sandbox_processes()) - before
            kill(killed)
            until(lambda killed=killed: not killed & set(sandbox_processes()))

        assert waiting.result().status == "exception"
        assert sandbox.run("def f(n): return n").status == "ok"


def test_a_zygote_that_fails_in_the_midst_says_so_and_the_next_candidate_is_judged_by_another(toy: Path) -> None:
    with Sandbox(toy, "train", entry="f", limits=AMPLE, workers=1) as sandbox:
        for _ in range(2):
            wire.send(sandbox._zygote._channel, {"id": "no number"})
            assert sandbox.run("def f(n): return n").value == [0, 1]


def test_many_threads_share_one_sandbox(evaluator: Evaluator, good: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        evaluations = list(pool.map(evaluator.evaluate, [good, "def select_next_node(:", good, "1 / 0"] * 3))

    assert [evaluation.status for evaluation in evaluations] == ["ok", "syntax", "ok", "exception"] * 3
    assert {evaluation.objective for evaluation in evaluations} == {NEAREST, None}


def test_candidates_run_side_by_side(toy: Path) -> None:
    with Sandbox(toy, "train", entry="f", workers=4) as sandbox, ThreadPoolExecutor(4) as pool:
        assert sandbox.run("def f(n): return n").status == "ok"
        if sandbox.workers == 1:
            pytest.skip("this system cannot tell candidates apart")
        idle = len(sandbox_processes())
        waiting = [pool.submit(sandbox.run, ENDLESS) for _ in range(4)]

        assert until(lambda: len(sandbox_processes()) >= idle + 4)
        sandbox.close()
        assert all("closed" in str(future.exception()) for future in waiting)


def test_candidates_share_nothing_with_those_before_them(toy: Path) -> None:
    leave = "import builtins, os\nbuiltins.left = 1\nopen('left', 'w').close()\nos.environ['LEFT'] = '1'\n"
    look = "import builtins, os\ndef f(n): return [hasattr(builtins, 'left'), os.listdir('.'), 'LEFT' in os.environ]"
    with Sandbox(toy, "train", entry="f", workers=1) as sandbox:
        assert sandbox.run(f"{leave}def f(n): return n").status == "ok"
        assert sandbox.run(look).value == [[False, [], False]] * 2


def test_the_private_folder_is_gone_afterwards(toy: Path) -> None:
    for namespaces in (True, False):
        with Sandbox(toy, "train", entry="f", namespaces=namespaces) as sandbox:
            value = sandbox.run(
                "import os, tempfile\nopen('x', 'w').close()\ndef f(n): return tempfile.mkdtemp()"
            ).value

        assert isinstance(value, list)
        assert not any(os.path.exists(str(folder)) for folder in value)


def test_equal_sources_draw_equal_random_numbers(toy: Path) -> None:
    source = "import random\nimport numpy as np\ndef f(n): return [random.random(), np.random.rand(), hash('x')]"
    with Sandbox(toy, "train", entry="f") as sandbox:
        assert sandbox.run(source).value == sandbox.run(source).value


def test_numpy_solutions_become_json(toy: Path) -> None:
    source = "import numpy as np\ndef f(n): return {'a': np.arange(n), 'b': np.float32(0.5), 'c': (np.int64(n), None)}"
    with Sandbox(toy, "train", entry="f") as sandbox:
        assert sandbox.run(source).value == [{"a": list(range(n)), "b": 0.5, "c": [n, None]} for n in range(2)]


def test_the_last_of_what_a_candidate_prints_is_kept(toy: Path) -> None:
    source = "import sys\nprint('x' * 9000)\nprint('last', file=sys.stderr)\ndef f(n): print(n); return n"
    with Sandbox(toy, "train", entry="f") as sandbox:
        outcome = sandbox.run(source)

    assert outcome.status == "ok"
    assert len(outcome.stdout) == 4096
    assert "last" in outcome.stdout
    assert outcome.stdout.endswith("0\n1\n")


@pytest.mark.parametrize(
    ("source", "status", "message"),
    [
        ("def f(n): return n", "ok", ""),
        ("def f(n)\n    return n", "syntax", "SyntaxError: expected ':' (<candidate>, line 1)"),
        ("def f(n):\nreturn n", "syntax", "IndentationError"),
        ("\0", "syntax", "null bytes"),
        ("\ud800", "syntax", "UnicodeDecodeError"),
        ("(" * 9999, "syntax", ""),
        ("def g(n): return n", "no_entry", "the module defines no function 'f'"),
        ("f = 3", "no_entry", "the module defines no function 'f'"),
        ("import nowhere", "import", "ModuleNotFoundError: No module named 'nowhere' (line 1)"),
        ("def f(n):\n    from math import nowhere", "import", "(line 2)"),
        ("def f(n):\n    return 1 / n", "exception", "ZeroDivisionError: division by zero (line 2)"),
        ("def f(): return 1", "exception", "TypeError: f() takes 0 positional arguments but 1 was given"),
        ("class E(Exception):\n    def __str__(self): 1 / 0\nraise E", "exception", "raised ZeroDivisionError"),
        ("raise ValueError('a\\nb')", "exception", "ValueError: a b (line 1)"),
        ("raise MemoryError", "out_of_memory", "MemoryError"),
        ("def f(n): return float('nan')", "non_finite", ""),
        ("def f(n): raise FloatingPointError", "non_finite", ""),
        ("def f(n): return [1, object()]", "invalid_solution", "object"),
        ("def f(n):\n    x = []\n    x.append(x)\n    return x", "invalid_solution", "nested"),
        ("import os\ndef f(n): os.abort()", "exception", "ended by SIG"),
        ("import os\ndef f(n): os._exit(3)", "exception", "exit code 3"),
    ],
)
def test_each_failure_has_its_status_and_says_why_in_one_line(
    source: str, status: str, message: str, toy_sandbox: Sandbox
) -> None:
    outcome = toy_sandbox.run(source)

    assert outcome.status == status, outcome
    assert message in outcome.message
    assert "\n" not in outcome.message
    assert (outcome.value is None) == (status != "ok")


@pytest.fixture(scope="module")
def toy_sandbox(tmp_path_factory: pytest.TempPathFactory):
    file = tmp_path_factory.mktemp("toy") / "evaluate.py"
    file.write_text(TOY, "utf-8")
    with Sandbox(file, "train", entry="f", limits=AMPLE) as sandbox:
        yield sandbox


def test_cpu_time_decides_and_is_reported(toy: Path) -> None:
    with Sandbox(toy, "train", entry="f", limits=Limits(cpu_seconds=1.0, wall_seconds=900.0)) as sandbox:
        slept = sandbox.run("import time\ntime.sleep(1.5)\ndef f(n): return n")
        burnt = sandbox.run("while True: pass")

    assert slept.status == "ok"
    assert slept.cpu_seconds < 1.0 < slept.wall_seconds
    assert burnt.status == "timeout"
    assert burnt.cpu_seconds > 1.0
    assert burnt.message == "more than 1 s of CPU time"


def test_an_option_reaches_the_instances_on_both_sides(toy: Path) -> None:
    with Evaluator(toy.parent, "train", "f", options={"count": 5}) as evaluator:
        evaluation = evaluator.evaluate("def f(n): return n / 3")

    assert evaluation.per_instance == (0, 1 / 3, 2 / 3, 1, 4 / 3)
    assert evaluation.objective == 0.66667


@pytest.mark.parametrize(
    ("text", "split", "options", "message"),
    [
        (None, "train", {}, "no problem at"),
        (TOY, "test", {}, "no split 'test'"),
        (TOY, "train", {"cuont": 1}, "unexpected keyword argument 'cuont'"),
        (TOY, "train", {"count": 0}, "has no instances"),
        ("def instances(split): ...", "train", {}, "defines no function 'solve', 'objective'"),
        ("import nowhere", "train", {}, "No module named 'nowhere'"),
        (
            f"{TOY}\nimport threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
            "train",
            {},
            "starts threads",
        ),
    ],
)
def test_a_problem_that_cannot_be_loaded_is_the_users_error_in_one_line(
    text: str | None, split: str, options: dict[str, object], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "evaluate.py"
    if text is not None:
        file.write_text(text, "utf-8")
    before = sandbox_processes()

    with pytest.raises(UserError, match=message):
        Sandbox(file, split, entry="f", options=options)

    assert sandbox_processes() == before


def test_isolation_names_every_feature(evaluator: Evaluator, plain_evaluator: Evaluator) -> None:
    assert set(evaluator.isolation) == set(plain_evaluator.isolation)
    assert not any(plain_evaluator.isolation[name] for name in ("processes", "network", "files"))


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="root may use namespaces")
def test_root_on_linux_gets_all_of_it_or_none(evaluator: Evaluator) -> None:
    if not evaluator.isolation["processes"]:
        pytest.skip("this container permits no namespaces")
    assert all(evaluator.isolation.values())


def test_a_sandbox_outlives_the_thread_that_started_it(toy: Path) -> None:
    sandboxes: list[Sandbox] = []
    starter = threading.Thread(target=lambda: sandboxes.append(Sandbox(toy, "train", entry="f")))
    starter.start()
    starter.join()
    try:
        assert sandboxes[0].run("def f(n): return n").status == "ok"
    finally:
        sandboxes[0].close()


class Reluctant:
    """A connection to a zygote that says first that the system has no process to give."""

    def __init__(self, inner, refusals: int) -> None:
        self.inner, self.refusals, self.dead = inner, refusals, False

    def judge(self, source: bytes, how: object, patience: float, look: object):
        if self.refusals:
            self.refusals -= 1
            return {"broken": "no process for a candidate: [Errno 11] Resource temporarily unavailable"}, b""
        return self.inner.judge(source, how, patience, look)

    def close(self) -> None:
        self.inner.close()


def test_a_system_without_a_free_process_is_asked_again(toy: Path) -> None:
    with Sandbox(toy, "train", entry="f", limits=AMPLE, workers=1) as sandbox:
        sandbox._zygote = Reluctant(sandbox._zygote, 2)  # type: ignore[assignment]
        assert sandbox.run("def f(n): return n").value == [0, 1]


def test_a_system_that_never_has_a_process_fails_the_run_and_not_the_candidate(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coevo.sandbox.client._PAUSES_SECONDS", (0.01,))
    with Sandbox(toy, "train", entry="f", limits=AMPLE, workers=1) as sandbox:
        sandbox._zygote = Reluctant(sandbox._zygote, 9)  # type: ignore[assignment]
        with pytest.raises(RunError, match="could not confine a candidate: no process"):
            sandbox.run("def f(n): return n")


def test_what_a_candidate_says_of_its_end_can_be_printed_and_written(toy: Path) -> None:
    with Sandbox(toy, "train", entry="f", limits=AMPLE, workers=1) as sandbox:
        outcome = sandbox.run("def f(n): raise ValueError('\\x1b[2J\\x00\\ud800')")
    assert outcome.status == "exception"
    assert outcome.message.isprintable()
    assert "\\x1b[2J\\x00\\ud800" in outcome.message
