"""Candidates that mean harm. Each ends with the status beside it, leaves no process, and harms no other."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from coevo.sandbox import Evaluation, Evaluator

from .conftest import NEAREST, NEAREST_FIRST, Evaluators, linux, sandbox_processes

pytestmark = linux

# Each is followed by nearest neighbour, so one that survives its own mischief is judged like any other.
HOSTILE = {
    "an endless loop": ("while True: pass", "timeout"),
    "an endless loop that ignores signals": (
        "import signal\nfor n in (1, 2, 3, 15, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
        "timeout",
    ),
    "a sleep": ("import time; time.sleep(1000)", "timeout"),
    "a fork bomb": ("import os\nwhile True: os.fork()", "exception"),
    "a fork bomb that goes on": (
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "timeout",
    ),
    "a chain of forks": ("import os\nwhile True:\n    if os.fork(): os._exit(0)", "exception"),
    "a double fork with setsid": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    time.sleep(1000)",
        "ok",
    ),
    "an orphan that forgets its parent": (
        "import ctypes, os, time\nif os.fork() == 0:\n    ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\n    os.setsid()\n"
        "    time.sleep(1000)",
        "ok",
    ),
    "a thread that goes on": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(1000,)).start()",
        "ok",
    ),
    "ten gigabytes of memory": ("x = bytearray(10**10)", "out_of_memory"),
    "memory bit by bit": ("x = []\nwhile True: x.append(bytearray(10**6))", "out_of_memory"),
    "memory in many processes": (
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n"
        "        x = bytearray(b'x') * (100 << 20)\n        time.sleep(1000)\ntime.sleep(1000)",
        "out_of_memory",
    ),
    "CPU time in many processes": (
        "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
        "timeout",
    ),
    "a gigabyte of output": ("import os\nfor _ in range(1024): os.write(1, bytes(1 << 20))", "exception"),
    "a 10 GB file": (
        "with open('big', 'wb') as f:\n    for _ in range(10 << 10): f.write(bytes(1 << 20))",
        "exception",
    ),
    "a sparse 10 GB file": ("with open('big', 'wb') as f: f.truncate(10 << 30)", "exception"),
    "a not-a-number": ("def select_next_node(*_): return float('nan')", "non_finite"),
    "an infinity": ("def select_next_node(*_): return np.float64('inf')", "non_finite"),
    "a wrong node": ("def select_next_node(*_): return 50", "invalid_solution"),
    "a negative node": ("def select_next_node(*_): return -1", "invalid_solution"),
    "a repeated node": ("def select_next_node(c, d, u, m): return int(u[0]) if c == 0 else c", "invalid_solution"),
    "no node": ("def select_next_node(*_): return None", "invalid_solution"),
    "a fraction": ("def select_next_node(c, d, u, m): return u[0] + 0.5", "invalid_solution"),
    "os._exit": ("import os; os._exit(0)", "exception"),
    "sys.exit": ("import sys; sys.exit(0)", "exception"),
    "a crash": ("import ctypes; ctypes.string_at(0)", "exception"),
    "endless recursion": ("def f(): return f()\nf()", "exception"),
    "a patched numpy": (
        "np.sqrt = np.roll = np.mean = lambda *_, **__: np.zeros(1)\nnp.argmin = lambda a: int(a.argmin())",
        "ok",
    ),
    "a patched evaluator": (
        "import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('coevo_problem'):\n"
        "        module.objective = lambda *_: 0.001\n        module.solve = lambda *_: [0]",
        "ok",
    ),
    "changed instances": (
        "def select_next_node(c, d, u, m):\n    n = u[m[c, u].argmin()]\n    m[:, c] = 9.0\n    u[:] = 0\n    return n",
        "ok",
    ),
    "a forged objective": (
        'import os\nos.write(4, b\'{"status": "ok", "objective": 0.001, "value": 0.001}\\n\'); os._exit(0)',
        "invalid_solution",
    ),
    "a forged result line on every descriptor": (
        'import os\nfor fd in range(64):\n    try: os.write(fd, b\'{"status": "ok", "objective": 0.001}\\n\')\n'
        "    except OSError: pass\nos._exit(0)",
        "invalid_solution",
    ),
    "a forged result without cities": (
        "import os, json\nos.write(4, json.dumps({'status': 'ok', 'value': [[0]] * 64}).encode()); os._exit(0)",
        "invalid_solution",
    ),
    "a forged result with huge numbers": (
        "import os\nos.write(4, b'{\"status\": \"ok\", \"value\": [' + b'9' * 5000 + b']}'); os._exit(0)",
        "invalid_solution",
    ),
    "a forged result nested deep": ("import os\nos.write(4, b'[' * 60000); os._exit(0)", "invalid_solution"),
    "a forged result that is not finite": (
        'import os\nos.write(4, b\'{"status": "ok", "value": [NaN, 1e999]}\'); os._exit(0)',
        "invalid_solution",
    ),
    "a forged status": ('import os\nos.write(4, b\'{"status": "engine_error"}\'); os._exit(0)', "invalid_solution"),
    "a pickle": ("import os, pickle\nos.write(4, pickle.dumps(print)); os._exit(0)", "invalid_solution"),
    "an answer of ten megabytes": ("import os\nos.write(4, b' ' * (10 << 20)); os._exit(0)", "invalid_solution"),
    "closed descriptors": ("import os; os.closerange(0, 64)", "exception"),
    "a kill of all that it sees": (
        "import os, signal\nfor pid in (os.getppid(), -1):\n    try:\n        if pid: os.kill(pid, 9)\n"
        "    except OSError: pass",
        "ok",
    ),
}
# What an answer says is judged by the run, wherever it comes from.
UNCONFINED = [
    name
    for name, (_, status) in HOSTILE.items()
    if status not in ("invalid_solution", "non_finite") and name != "a kill of all that it sees"
]
ENCLOSED = {
    "many files": ("for n in range(10**6): open(str(n), 'w').write('x' * 9999)", "exception"),
    "a file outside its folder": ("open('/tmp/coevo-was-here', 'w')", "exception"),
    "a look at the users": ("open('/etc/passwd').read()", "exception"),
    "a look at other processes": ("import os; os.listdir('/proc')", "exception"),
    "namespaces of its own": (
        "import ctypes\nif ctypes.CDLL(None).unshare(0x10020000): raise PermissionError",
        "exception",
    ),
}


def judged(evaluator: Evaluator, attack: str, good: str) -> Evaluation:
    definition, call = (good, attack) if "def select_next_node" not in attack else ("import numpy as np", attack)
    return evaluator.evaluate(f"{definition}\n\n{call}\n")


def assert_unharmed(evaluator: Evaluator, good: str, before: list[int]) -> None:
    assert sorted(sandbox_processes()) == before
    after = evaluator.evaluate(good)
    expected = NEAREST_FIRST if len(after.per_instance) == 1 else NEAREST
    assert (after.status, after.objective) == ("ok", expected), after


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_candidate_ends_as_written_and_harms_nobody(name: str, evaluators: Evaluators, good: str) -> None:
    attack, status = HOSTILE[name]
    evaluator = evaluators(status)
    before = sorted(sandbox_processes())

    evaluation = judged(evaluator, attack, good)

    assert evaluation.status == status, evaluation
    assert (evaluation.objective is None) == (evaluation.status != "ok")
    assert "\n" not in evaluation.message
    assert_unharmed(evaluator, good, before)


@pytest.mark.parametrize("name", ENCLOSED)
def test_a_candidate_cannot_leave_its_file_system(name: str, evaluator: Evaluator, good: str) -> None:
    if not (evaluator.isolation["files"] and evaluator.isolation["no_namespaces"]):
        pytest.skip("this system permits no namespaces")
    attack, status = ENCLOSED[name]
    before = sorted(sandbox_processes())

    evaluation = judged(evaluator, attack, good)

    assert evaluation.status == status, evaluation
    assert_unharmed(evaluator, good, before)
    assert not Path("/tmp/coevo-was-here").exists()


@pytest.mark.parametrize("name", UNCONFINED)
def test_without_namespaces_the_statuses_and_the_clean_end_are_the_same(
    name: str, evaluators: Evaluators, good: str
) -> None:
    attack, status = HOSTILE[name]
    plain_evaluator = evaluators(status, namespaces=False)
    before = sorted(sandbox_processes())

    evaluation = judged(plain_evaluator, attack, good)

    # All processes of this user count where there is no other user: then the first fork may be refused.
    if plain_evaluator.isolation["user"] or ("fork" not in attack and "Thread" not in attack):
        assert evaluation.status == status, evaluation
    assert_unharmed(plain_evaluator, good, before)


def test_a_kill_of_the_zygote_costs_its_candidate_and_no_other(plain_evaluator: Evaluator, good: str) -> None:
    evaluation = plain_evaluator.evaluate(f"{good}\nimport os\nos.kill(os.getppid(), 9)\n")

    assert evaluation.status == "exception"
    assert plain_evaluator.evaluate(good).objective == NEAREST


def test_a_patched_numpy_has_no_say_in_the_objective(evaluator: Evaluator, good: str) -> None:
    attack, _ = HOSTILE["a patched numpy"]

    assert judged(evaluator, attack, good).objective == NEAREST


def test_a_candidate_that_changes_its_instances_is_judged_on_the_real_ones(evaluator: Evaluator, good: str) -> None:
    attack, _ = HOSTILE["changed instances"]

    assert judged(evaluator, attack, good).objective == NEAREST


def test_the_environment_and_the_descriptors_of_the_run_are_not_inherited(
    evaluator: Evaluator, problem: Path, good: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    look = (
        "import os\nprint(dict(os.environ))\n"
        "for path in ('/proc/self/environ', f'/proc/{os.getppid()}/environ'):\n"
        "    try: print(open(path, 'rb').read())\n    except OSError: pass\n"
        "for fd in range(5, 1000):\n    try: print('open', fd, os.fstat(fd))\n    except OSError: pass\n"
        "print('seen')\n"
    )
    with (
        open(tmp_path / "theirs", "w", encoding="utf-8") as kept,
        Evaluator(problem, "train", "select_next_node") as fresh,
    ):
        evaluation = fresh.evaluate(f"{good}\n{look}")
        assert not kept.closed

    assert evaluation.status == "ok"
    assert "seen" in evaluation.stdout
    assert "secret" not in evaluation.stdout
    assert "open" not in evaluation.stdout


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def test_a_listener_on_the_loopback_device_cannot_be_reached(
    evaluator: Evaluator, good: str, listener: socket.socket
) -> None:
    if not evaluator.isolation["network"]:
        pytest.skip("this system permits no network namespace")
    port = listener.getsockname()[1]

    evaluation = evaluator.evaluate(f"{good}\nimport socket\nsocket.create_connection(('127.0.0.1', {port}), 1)\n")

    assert evaluation.status == "exception"
    with pytest.raises(TimeoutError):
        listener.accept()


@pytest.mark.parametrize("namespaces", [True, False])
def test_a_fork_bomb_does_not_disturb_those_that_run_beside_it(
    namespaces: bool, evaluators: Evaluators, good: str
) -> None:
    bomb, status = HOSTILE["a fork bomb that goes on"]
    chosen = evaluators(status, namespaces=namespaces)
    with ThreadPoolExecutor(2) as pool:
        bombs = pool.submit(chosen.evaluate, f"{good}\n{bomb}")
        threading.Event().wait(0.2)
        evaluations = [chosen.evaluate(good) for _ in range(3)]

    if chosen.isolation["processes"] or chosen.isolation["user"]:
        assert bombs.result().status == status
    assert [evaluation.objective for evaluation in evaluations] == [NEAREST_FIRST] * 3
