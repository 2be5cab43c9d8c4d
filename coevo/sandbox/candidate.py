"""Forks a process and takes its rights away, in an order that matters."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coevo.sandbox import filters, limits, linux, namespaces
from coevo.sandbox.limits import Limits

FIRST_FD = 3
READY = b"\n"
CONFINEMENT = ("network", "temporary_folder", "user", "no_namespaces", "keyring", "capabilities", "system_calls")
"""In the order in which they are put in force."""
NAMESPACES = frozenset(CONFINEMENT[:4]) - {"user"}
_KEPT_VARIABLES = ("LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the system let the zygote set up, and the numbers that go with it.

    Attributes:
        isolation: the features in force, see `coevo.sandbox.Sandbox.isolation`.
        proc: a descriptor of /proc, if there is one.
        first_user: the first of a range of unused user numbers, two per slot; None without root.
        slots: how many there are at most; a candidate's `solve` has the number that lies this much above its own.
        mapped_bytes: address space of the zygote, which each candidate starts with.
        resident_bytes: memory of the zygote, which a candidate shares until it writes.
        folder: where private folders are made if none can be mounted.
    """

    isolation: Mapping[str, bool]
    proc: int | None
    first_user: int | None
    slots: int
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


class Launcher:
    """Forks confined processes from this one, whose descriptors but those that it passes on they must not have."""

    def __init__(self, around: Surroundings, limits: Limits, channel: socket.socket) -> None:
        """Take what holds for all.

        Args:
            around: what the system permits.
            limits: of each process.
            channel: of this process, which no child may close as an object.
        """
        self._around = around
        self._limits = limits
        self._channel = channel
        self._namespace: int | None = None
        if around.isolation["processes"]:
            self._namespace = around.open_proc("self/ns/pid")

    def launch(
        self,
        slot: int,
        ready: int,
        output: int,
        channels: Sequence[int],
        work: Callable[[], object],
        *,
        enclosed: bool = True,
    ) -> tuple[int, str | None]:
        """Fork a process that is confined and then calls `work`; its number, and the folder to remove afterwards.

        Args:
            slot: which it has alone.
            ready: descriptor for `READY`, or what went wrong before.
            output: descriptor for what it prints.
            channels: descriptors that it has at 3 and up, in this order.
            work: what it does.
            enclosed: puts all of `CONFINEMENT` in force, as far as it is permitted, in a namespace of processes of its
                own; False only changes the user.

        Raises:
            OSError: the system has no room for another process.
        """
        folder, features = None, CONFINEMENT if enclosed else ("user",)
        if enclosed and not self._around.isolation["temporary_folder"]:
            folder = tempfile.mkdtemp(dir=self._around.folder)
            if self._around.isolation["user"]:
                os.chown(folder, self._around.user(slot), self._around.user(slot))
        parent, namespace = os.getpid(), self._namespace if enclosed else None
        if namespace is not None:
            linux.unshare(linux.CLONE_NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                place = folder or (namespaces.SCRATCH if enclosed else "/")
                self._begin(slot, None if namespace else parent, place, (ready, output, *channels), work, features)
        finally:
            # The next child shall get a namespace of its own, not a place in this one.
            if namespace is not None:
                linux.setns(namespace, linux.CLONE_NEWPID)
        return pid, folder

    def _begin(
        self,
        slot: int,
        parent: int | None,
        folder: str,
        pipes: tuple[int, ...],
        work: Callable[[], object],
        features: Sequence[str],
    ) -> None:
        """What the new process does, from its first step to its end."""
        ready = pipes[0]
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # Closing it as an object would close whatever has its number by then.
            self._channel.detach()
            os.setsid()
            self._around.prefer_as_victim()
            for feature in features:
                if self._around.isolation[feature]:
                    confine(feature, self._around, self._limits, slot)
            ready = _keep_only(*pipes)
            limits.apply(self._limits, self._around.mapped_bytes)
            if sys.platform == "linux":
                linux.forbid_new_privileges()
                # After the change of user, which forgets it.
                linux.die_with_parent(signal.SIGKILL)
                if parent is not None and os.getppid() != parent:
                    os._exit(1)
            os.chdir(folder)
            kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
            os.environ.clear()
            os.environ.update(kept, HOME=folder, TMPDIR=folder)
            tempfile.tempdir = None
            os.write(ready, READY)
            os.close(ready)
            work()
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
    elif feature == "keyring":
        filters.leave_keyring()
    elif feature == "capabilities":
        filters.drop_capabilities()
    elif feature == "system_calls":
        filters.filter_calls()


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


def _keep_only(ready: int, output: int, *channels: int) -> int:
    """Leave open: nothing to read, the output twice, the channels from `FIRST_FD` on, and `ready`, returned."""
    ready, output, *theirs = (fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in (ready, output, *channels))
    os.dup2(output, 1)
    os.dup2(output, 2)
    for place, fd in enumerate(theirs, FIRST_FD):
        os.dup2(fd, place)
    os.closerange(FIRST_FD + len(theirs), ready)
    os.closerange(ready + 1, min(os.sysconf("SC_OPEN_MAX"), 1 << 16))
    return ready
