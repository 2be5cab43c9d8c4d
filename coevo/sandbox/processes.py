"""What a candidate's processes use, and how all of them end where there is no process namespace."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import secrets
import signal
import time
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = resource.getpagesize()
_FIELDS_AFTER_NAME = 2


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table; `waited_seconds` are of children that were waited for."""

    parent: int
    own_seconds: float
    waited_seconds: float
    resident_bytes: int


def table(proc: int | None) -> dict[int, Process]:
    """All processes in sight of the /proc that `proc` is open on; empty without one."""
    if proc is None:
        return {}
    found: dict[int, Process] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            # It may be gone by now.
            with contextlib.suppress(OSError):
                found[int(name)] = _parse(_read(proc, f"{name}/stat"))
    return found


def _read(proc: int, path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY, dir_fd=proc)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def _parse(stat: bytes) -> Process:
    # The name may hold spaces and brackets: everything after the last bracket is numbers.
    fields = stat[stat.rindex(b")") + _FIELDS_AFTER_NAME :].split()
    own, waited = (sum(map(int, fields[place : place + 2])) / _TICKS for place in (11, 13))
    return Process(int(fields[1]), own, waited, int(fields[21]) * _PAGE)


def owners(proc: int | None) -> dict[int, int]:
    """The user of each process in sight."""
    found: dict[int, int] = {}
    for name in os.listdir(proc) if proc is not None else ():
        if name.isdigit():
            with contextlib.suppress(OSError):
                found[int(name)] = os.stat(name, dir_fd=proc).st_uid
    return found


def tree(root: int, processes: dict[int, Process]) -> list[int]:
    """`root` and its descendants. Orphans count where `root` is the first of its namespace."""
    children: dict[int, list[int]] = {}
    for pid, process in processes.items():
        children.setdefault(process.parent, []).append(pid)
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def cpu_seconds_of(pid: int) -> float:
    """Processor time of one process without its children, 0.0 where the system does not tell."""
    with contextlib.suppress(OSError, OverflowError):
        return time.clock_gettime((~pid << 3) | 2)
    return 0.0


def mapped_bytes(proc: int | None) -> int:
    """Address space of this process; a generous guess without /proc."""
    if proc is None:
        return 4 << 30
    return int(_read(proc, "self/statm").split()[0]) * _PAGE


def kill_user(user: int) -> None:
    """Kill every process of `user` at once: no fork can slip between, as it can in a walk."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(user, user, user)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def any_of_user(proc: int | None, user: int) -> bool:
    """Whether a process of `user` is left, if only to be reaped."""
    mark = f"Uid:\t{user}\t".encode()
    for pid in table(proc):
        with contextlib.suppress(OSError):
            if proc is not None and mark in _read(proc, f"{pid}/status"):
                return True
    return False


def kill_all(pids: list[int]) -> bool:
    """Kill `pids`; False if there was none to kill."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)


def remove(folder: str) -> None:
    """Remove a folder with all that is in it, however deep, where nobody writes any more.

    Folders in it are emptied into it and then removed, so that no path becomes long and no call nests.
    """
    numbers, mark = itertools.count(), secrets.token_hex(8)
    with contextlib.suppress(FileNotFoundError):
        os.chmod(folder, 0o700)
        while entries := list(os.scandir(folder)):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)
                    continue
                os.chmod(entry.path, 0o700)
                for inner in list(os.scandir(entry.path)):
                    if inner.is_dir(follow_symlinks=False):
                        os.chmod(inner.path, 0o700)  # moving it writes into it
                    os.rename(inner.path, os.path.join(folder, f"{mark}-{next(numbers)}"))
                os.rmdir(entry.path)
        os.rmdir(folder)
