"""Forks the process that one candidate runs in and takes its rights away, in an order that matters."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coevo.sandbox import limits, linux, namespaces
from coevo.sandbox.limits import Limits

RESULT_FD = 3
READY = b"\n"
CONFINEMENT = ("network", "temporary_folder", "user", "no_namespaces")
_KEPT_VARIABLES = ("LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the system let the zygote set up, and the numbers that go with it.

    Attributes:
        isolation: the features in force, see `coevo.sandbox.Sandbox.isolation`.
        proc: a descriptor of /proc, if there is one.
        first_user: the first of a range of unused user numbers, one per slot; None without root.
        mapped_bytes: address space of the zygote, which each candidate starts with.
        resident_bytes: memory of the zygote, which a candidate shares until it writes.
        folder: where private folders are made if none can be mounted.
    """

    isolation: Mapping[str, bool]
    proc: int | None
    first_user: int | None
    mapped_bytes: int
    resident_bytes: int
    folder: str

    def user(self, slot: int) -> int:
        """The user number of the candidate in `slot`."""
        return os.geteuid() if self.first_user is None else self.first_user + slot

    def open_proc(self, path: str, flags: int = os.O_RDONLY) -> int:
        """Open a file of /proc; `OSError` where that cannot be."""
        if self.proc is None:
            raise FileNotFoundError(path)
        return os.open(path, flags, dir_fd=self.proc)

    def write_proc(self, path: str, data: bytes) -> None:
        """Write a file of /proc; `OSError` where that cannot be."""
        fd = self.open_proc(path, os.O_WRONLY)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def prefer_as_victim(self) -> None:
        """If the machine runs out of memory, this process shall die before the run does."""
        with contextlib.suppress(OSError):
            self.write_proc("self/oom_score_adj", b"1000")


@dataclass(slots=True)
class Candidate:
    """One running candidate, as its supervisor sees it.

    `stages`: lines that it may still send ahead of its answer; `passed`: bytes of them that went on to the run.
    """

    number: int
    slot: int
    pid: int
    result_pipe: int
    output_pipe: int
    ready_pipe: int
    folder: str | None
    stages: int = 0
    lines: int = 0
    passed: int = 0
    started: float = field(default_factory=time.monotonic)
    result: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    printed: int = 0
    cpu_seconds: float = 0.0
    reason: str | None = None


class Launcher:
    """Forks candidates from this process, the zygote, whose `channel` to the run they must not have."""

    def __init__(self, around: Surroundings, limits: Limits, channel: socket.socket) -> None:
        self._around = around
        self._limits = limits
        self._channel = channel
        self._namespace: int | None = None
        if around.isolation["processes"]:
            self._namespace = around.open_proc("self/ns/pid")

    def launch(self, number: int, slot: int, work: Callable[[int], None]) -> Candidate:
        """Fork a process that is confined and then calls `work` with the descriptor for its answer.

        Raises:
            OSError: the system has no room for another process.
        """
        folder = None
        if not self._around.isolation["temporary_folder"]:
            folder = tempfile.mkdtemp(dir=self._around.folder)
            if self._around.isolation["user"]:
                os.chown(folder, self._around.user(slot), self._around.user(slot))
        pipes = [os.pipe() for _ in range(3)]
        theirs = [end for _, end in pipes]
        zygote = os.getpid()
        if self._namespace is not None:
            linux.unshare(linux.CLONE_NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                self._begin(slot, zygote, folder or namespaces.SCRATCH, theirs, work)
        finally:
            # The next child shall get a namespace of its own, not a place in this one.
            if self._namespace is not None:
                linux.setns(self._namespace, linux.CLONE_NEWPID)
            for fd in theirs:
                os.close(fd)
        for fd, _ in pipes:
            os.set_blocking(fd, False)
        return Candidate(number, slot, pid, *(fd for fd, _ in pipes), folder=folder)

    def _begin(self, slot: int, zygote: int, folder: str, pipes: list[int], work: Callable[[int], None]) -> None:
        """What the new process does, from its first step to its end."""
        ready = pipes[2]
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Closing it as an object would close whatever has its number by then.
            self._channel.detach()
            os.setsid()
            self._around.prefer_as_victim()
            for feature in CONFINEMENT:
                if self._around.isolation[feature]:
                    confine(feature, self._around, self._limits, slot)
            ready = _keep_only(*pipes)
            limits.apply(self._limits, self._around.mapped_bytes)
            if sys.platform == "linux":
                linux.forbid_new_privileges()
                # After the change of user, which forgets it.
                linux.die_with_parent(signal.SIGKILL)
                if self._namespace is None and os.getppid() != zygote:
                    os._exit(1)
            os.chdir(folder)
            kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
            os.environ.clear()
            os.environ.update(kept, HOME=folder, TMPDIR=folder)
            tempfile.tempdir = None
            os.write(ready, READY)
            os.close(ready)
            work(RESULT_FD)
        except BaseException as error:  # noqa: BLE001 - not the candidate's fault: say so and end
            with contextlib.suppress(OSError):
                os.write(ready, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(1)


def confine(feature: str, around: Surroundings, bounds: Limits, slot: int) -> None:
    """Put one feature of `CONFINEMENT` in force in this process.

    Raises:
        OSError: the system does not permit it.
    """
    if feature == "network":
        # Where shared memory could not be forbidden it shall at least end with the candidate.
        memory = 0 if around.isolation["shared_memory"] else linux.CLONE_NEWIPC
        linux.unshare(linux.CLONE_NEWNET | memory)
    elif feature == "temporary_folder":
        namespaces.mount_scratch(bounds.file_mb, around.user(slot))
    elif feature == "user":
        limits.become(around.user(slot))
    elif feature == "no_namespaces":
        # Inside a namespace of its own a candidate could mount memory that nobody counts.
        linux.unshare(linux.CLONE_NEWUSER)
        for kind in ("user", "mnt", "pid", "net", "ipc"):
            around.write_proc(f"sys/user/max_{kind}_namespaces", b"0")


def permitted(feature: str, around: Surroundings, bounds: Limits) -> bool:
    """Try `feature` in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            confine(feature, around, bounds, 0)
        except OSError:
            os._exit(1)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


def _keep_only(result: int, output: int, ready: int) -> int:
    """Leave open: nothing to read, the output twice, the answer at `RESULT_FD`, and `ready`, returned."""
    result, output, ready = (fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in (result, output, ready))
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(result, RESULT_FD)
    os.closerange(RESULT_FD + 1, ready)
    os.closerange(ready + 1, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))
    return ready
