"""What a candidate cannot ask the kernel for, what it does not see, and what it cannot hide."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coevo.errors import UserError
from coevo.sandbox import Evaluator, Sandbox, filters
from coevo.sandbox.claims import judge
from coevo.sandbox.processes import remove
from tests.sandbox_limits import AMPLE, SMALL

from .conftest import linux

pytestmark = linux

TOY = """
import collections
Point = collections.namedtuple("Point", "x")

def instances(split, what="number"):
    return [what]

def solve(function, instance):
    return function({"number": 1, "object": object(), "array": Ellipsis}[instance])

def objective(solution, instance):
    return 0.0
"""
CALL = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\ndef f(n):\n    return [{}, ctypes.get_errno()]\n"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A problem that another user may read."""
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        Path(made, "evaluate.py").write_text(TOY, "utf-8")
        yield Path(made)


@pytest.fixture(scope="module", params=[True, False], ids=["namespaces", "no namespaces"])
def sandbox(request: pytest.FixtureRequest, folder: Path) -> Iterator[Sandbox]:
    with Sandbox(
        folder / "evaluate.py", "train", entry="f", limits=AMPLE, workers=1, namespaces=request.param
    ) as started:
        yield started


REFUSED = {
    "a keyring": "libc.syscall(ctypes.c_long({keyctl}), 0, ctypes.c_int(-3), 0)",
    "a key": "libc.syscall(ctypes.c_long({add_key}), b'user', b'x', b'y', ctypes.c_size_t(1), ctypes.c_int(-3))",
    "a file in memory": "libc.syscall(ctypes.c_long({memfd_create}), b'x', 0)",
    "a debugger": "libc.syscall(ctypes.c_long({ptrace}), 0, 0, 0, 0)",
    "the memory of another process": "libc.syscall(ctypes.c_long({process_vm_readv}), 1, 0, 0, 0, 0, 0)",
    "a ring of requests": "libc.syscall(ctypes.c_long({io_uring_setup}), 8, 0)",
    "a program in the kernel": "libc.syscall(ctypes.c_long({bpf}), 0, 0, 0)",
    "page faults": "libc.syscall(ctypes.c_long({userfaultfd}), 0)",
    "counters": "libc.syscall(ctypes.c_long({perf_event_open}), 0, 0, 0, 0, 0)",
    "namespaces": "libc.unshare(0x10000000)",
    "mounts": "libc.mount(b'none', b'/', b'tmpfs', 0, None)",
    "shared memory": "libc.shmget(0, 4096, 0o1600)",
    "shared memory of no file": "libc.mmap(None, ctypes.c_size_t(4096), 3, 0x21, -1, ctypes.c_long(0))",
    "a process in a namespace": "libc.syscall(ctypes.c_long({clone}), ctypes.c_ulong(0x10000011), 0, 0, 0, 0)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_kernel_refuses(name: str, sandbox: Sandbox) -> None:
    if not sandbox.isolation["system_calls"]:
        pytest.skip("this kernel filters no calls")
    place = ["x86_64", "aarch64"].index(platform.machine())
    numbers = {call: each[place] for call, each in filters._REFUSED.items()}
    call = REFUSED[name].format(**numbers, clone=filters._MACHINES[platform.machine()][1])

    outcome = sandbox.run(CALL.format(call))

    assert outcome.value == [[-1, 1]], outcome


@pytest.mark.parametrize("family", ["AF_UNIX", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_VSOCK", "AF_ALG", "AF_PACKET"])
def test_there_are_no_sockets_but_pairs(family: str, sandbox: Sandbox) -> None:
    if not sandbox.isolation["system_calls"]:
        pytest.skip("this kernel filters no calls")
    kind = "SOCK_STREAM" if family == "AF_UNIX" else "SOCK_RAW"
    source = f"import socket\ndef f(n):\n    socket.socketpair()\n    socket.socket(socket.{family}, socket.{kind})\n"

    assert "PermissionError" in sandbox.run(source).message


def test_a_call_of_another_architecture_ends_the_process(sandbox: Sandbox) -> None:
    if not sandbox.isolation["system_calls"] or platform.machine() != "x86_64":
        pytest.skip("x32 calls exist on x86_64")
    # getpid as of the x32 architecture, which has numbers of its own.
    outcome = sandbox.run(CALL.format("libc.syscall(ctypes.c_long(0x40000000 + 39))"))

    assert outcome.value == [[-1, 38]]


def test_what_numpy_and_python_need_is_not_refused(sandbox: Sandbox) -> None:
    source = (
        "import os, subprocess, tempfile, threading\nimport numpy as np\ndef f(n):\n"
        "    thread = threading.Thread(target=print)\n    thread.start()\n    thread.join()\n"
        "    if os.fork() == 0: os._exit(0)\n    os.wait()\n"
        "    with tempfile.NamedTemporaryFile('w') as file: file.write('x')\n"
        "    return float(np.linalg.inv(np.eye(200)).trace())\n"
    )
    if not (sandbox.isolation["processes"] or sandbox.isolation["user"]):
        pytest.skip("all processes of this user count against the limit of a candidate")
    assert sandbox.run(source).value == [200.0]


def test_a_candidate_has_no_capability(sandbox: Sandbox) -> None:
    source = (
        "import ctypes\ndef f(n):\n    header = (ctypes.c_uint32 * 2)(0x20080522, 0)\n    sets = (ctypes.c_uint32 * 6)()\n"  # noqa: E501
        "    ctypes.CDLL(None).capget(header, sets)\n    return list(sets)\n"
    )
    assert sandbox.run(source).value == [[0] * 6]


def test_a_candidate_sees_no_folder_of_the_user_and_no_problem(folder: Path) -> None:
    with Sandbox(folder / "evaluate.py", "train", entry="f", limits=AMPLE, workers=1) as sandbox:
        if not sandbox.isolation["files"]:
            pytest.skip("this system permits no namespaces")
        checkout = Path(__file__).parents[2]
        paths = [
            str(folder / "evaluate.py"),
            *(str(checkout / name) for name in ("README.md", "tests", "coevo", "tasks")),
        ]
        source = f"import os, sys\ndef f(n):\n    return [path for path in {paths} if os.path.exists(path)]\n"
        found = sandbox.run(source).value
        packages = sandbox.run(
            "import importlib.util, sys\ndef f(n):\n    return [importlib.util.find_spec(n) is not None for n in "
            "('coevo_heuristics', 'coevo_heuristics.problem', 'numpy', 'json')]\n"
        )

    assert found == [[]]
    assert packages.value == [[False, False, True, True]] or packages.status == "import", packages


def test_nothing_that_is_seen_can_be_written_below_other_mounts_too(folder: Path) -> None:
    with Sandbox(folder / "evaluate.py", "train", entry="f", limits=AMPLE, workers=1) as sandbox:
        if not sandbox.isolation["files"]:
            pytest.skip("this system permits no namespaces")
        source = (
            "import os\ndef f(n):\n    found = []\n    for root, folders, _ in os.walk('/'):\n"
            "        if root.startswith(('/scratch', '/dev')): continue\n"
            "        if root.count('/') > 5: folders.clear()\n"
            "        if not os.statvfs(root).f_flag & os.ST_RDONLY: found.append(root)\n    return found\n"
        )
        assert sandbox.run(source).value == [[]]


@pytest.mark.parametrize("namespaces", [True, False])
def test_processor_time_of_children_that_nobody_waits_for_counts(namespaces: bool, folder: Path) -> None:
    source = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "while True:\n    if os.fork() == 0:\n        end = time.process_time() + 0.4\n"
        "        while time.process_time() < end: pass\n        os._exit(0)\n    time.sleep(0.5)\n"
    )
    limits = replace(SMALL, wall_seconds=600.0)
    with Sandbox(
        folder / "evaluate.py", "train", entry="f", limits=limits, workers=1, namespaces=namespaces
    ) as sandbox:
        if not (sandbox.isolation["measured_trees"] and (sandbox.isolation["processes"] or sandbox.isolation["user"])):
            pytest.skip("this system does not show processes, or refuses forks")
        outcome = sandbox.run(source)

    assert outcome.status == "timeout", outcome
    assert "CPU" in outcome.message


ORPHANS = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        if os.fork(): os._exit(0)
        {work}
        time.sleep(1000)
        os._exit(0)
for _ in range(6): os.wait()
time.sleep(1000)
"""


@pytest.mark.parametrize("namespaces", [True, False])
@pytest.mark.parametrize(
    ("work", "status"), [("while True: pass", "timeout"), ("x = bytearray(b'x') * (60 << 20)", "out_of_memory")]
)
def test_orphans_count_too(namespaces: bool, work: str, status: str, folder: Path) -> None:
    limits = replace(SMALL if status == "timeout" else AMPLE, wall_seconds=600.0, memory_mb=200)
    with Sandbox(
        folder / "evaluate.py", "train", entry="f", limits=limits, workers=1, namespaces=namespaces
    ) as sandbox:
        if not (sandbox.isolation["measured_trees"] and (sandbox.isolation["processes"] or sandbox.isolation["user"])):
            pytest.skip("this system does not show processes, or refuses forks")
        assert sandbox.run(ORPHANS.format(work=work)).status == status


def test_what_solve_cannot_send_is_the_authors_mistake_and_names_it(folder: Path) -> None:
    with Evaluator(folder, "train", "f", limits=AMPLE, options={"what": "object"}) as evaluator:
        for source in ("def f(n): return 1", "import os\ndef f(n): return 1"):
            with pytest.raises(UserError, match=r"`solve` calls 'f' with a builtins.object; .* numpy arrays"):
                evaluator.evaluate(source)


def test_where_nothing_keeps_a_candidate_from_the_users_files_it_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = {"files": False, "user": False, "processes": False}
    monkeypatch.setattr("coevo.sandbox.client.Connection", lambda *_: Bare(bare))
    monkeypatch.delenv("COEVO_WEAK_SANDBOX")
    with pytest.raises(UserError, match="COEVO_WEAK_SANDBOX=1"):
        Sandbox(folder / "evaluate.py", "train", entry="f")
    monkeypatch.setenv("COEVO_WEAK_SANDBOX", "1")
    assert Sandbox(folder / "evaluate.py", "train", entry="f").workers == 1


class Bare:
    """A zygote on a system that permits nothing."""

    def __init__(self, isolation: dict[str, bool]) -> None:
        self.isolation = isolation

    def close(self) -> None:
        pass


def test_a_folder_nested_beyond_reason_is_removed(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    outside = tmp_path / "outside"
    outside.write_text("kept")
    home = os.open(".", os.O_RDONLY)
    os.chdir(made)
    try:
        for _ in range(3000):
            os.mkdir("deep")
            os.symlink(outside, "link")
            os.chdir("deep")
        os.mkdir("closed", 0o000)
    finally:
        os.fchdir(home)
        os.close(home)

    for number in range(3):  # names such as those that it is given while it is emptied
        (made / f"coevo-{number}" / "x").mkdir(parents=True)
        (made / f"coevo-{number}" / "file").write_text("")
    made.chmod(0o000)

    remove(str(made))

    assert not made.exists()
    assert outside.read_text() == "kept"


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    header = {"reason": None, "code": -40, "cpu_seconds": 0.0}
    assert judge(header, b"", AMPLE) == ("exception", None, "the process was ended by signal 40")
