"""`python -m coevo.sandbox.zygote FD PARENT`: the processes that a candidate and its `solve` are forked from.

A guardian forks the zygote and does nothing but watch: when the run dies, however it dies, the guardian kills
the zygote, and with the zygote everything in its process namespace. All are fresh interpreters without threads. The
zygote forks a nursery, which has numpy in memory and nothing else: candidates are forked from that. Then it loads the
problem and its instances: processes that run `solve` are forked from the zygote.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import signal
import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from coevo.errors import CoevoError, UserError
from coevo.sandbox import linux, namespaces, processes, wire
from coevo.sandbox.candidate import CONFINEMENT, NAMESPACES, Launcher, Surroundings, permitted
from coevo.sandbox.guardian import guard
from coevo.sandbox.limits import Limits, become
from coevo.sandbox.nursery import Nursery, serve
from coevo.sandbox.problem import load_instances, load_problem
from coevo.sandbox.supervisor import Supervisor

# What candidates like to import: loaded once, and within reach of a user who may not read the interpreter's.
_LIKED = (
    *("bisect", "collections", "copy", "dataclasses", "functools", "heapq", "itertools", "math", "operator"),
    *("random", "statistics", "tempfile", "time", "typing", "numpy.linalg", "numpy.random"),
)
_MAPPED_USERS = 1 << 31


def main() -> None:
    """Read the first message, which holds the settings, and become guardian and zygote."""
    channel, run = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    first = wire.receive(channel)
    if first is None:
        return
    # The numbers of this process's users, before a namespace hides them.
    users = _mapped_users()
    own = bool(first[0]["namespaces"]) and namespaces.enter_processes()
    if sys.platform == "linux":
        linux.adopt_orphans()
    guardian = os.getpid()
    zygote = os.fork()
    if zygote:
        channel.detach()
        guard(run, zygote)
        # The run does the same, if it lives.
        with contextlib.suppress(OSError):
            processes.remove(str(first[0]["folder"]))
        return
    try:
        if sys.platform == "linux":
            linux.die_with_parent(signal.SIGKILL)
            linux.adopt_orphans()
            if not own and os.getppid() != guardian:
                return
        _serve(channel, cast("dict[str, Any]", first[0]), own, users)
    except CoevoError as error:
        wire.send(channel, {"event": "failed", "user": isinstance(error, UserError), "message": str(error)})
    except Exception as error:  # noqa: BLE001 - the run shows it
        traceback.print_exc()
        wire.send(channel, {"event": "failed", "user": False, "message": f"{type(error).__name__}: {error}"})


def _serve(channel: socket.socket, settings: dict[str, Any], own: bool, users: int) -> None:
    mounts = own and namespaces.enter_mounts()
    proc = namespaces.open_processes(fresh=mounts) if mounts or not own else None
    slots, first_user = int(settings["workers"]), None
    if os.geteuid() == 0:
        # Any unused range will do; a random one keeps two runs from counting each other's processes.
        first_user = users // 2 + random.SystemRandom().randrange(max(1, users // 2 - 2 * slots))
    for name in _LIKED:
        importlib.import_module(name)
    limits, file = Limits(**settings["limits"]), Path(settings["problem"])
    around = Surroundings(
        isolation={"processes": own},
        proc=proc,
        first_user=first_user,
        slots=slots,
        mapped_bytes=0,
        resident_bytes=0,
        folder=settings["folder"],
    )
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    zygote = os.getpid()
    # Before anything is loaded that a candidate must not find in its memory.
    pid = os.fork()
    if not pid:
        try:
            channel.close()
            ours.close()
            around = _enclosed(around, limits, settings["namespaces"], mounts, file.resolve().parent)
            # The frames of this function are in its memory.
            settings.clear()
            del file, channel, ours
            if os.getppid() == zygote:
                serve(theirs, around, Launcher(around, limits, theirs))
        finally:
            os._exit(1)
    theirs.close()
    nursery = Nursery(pid, ours)
    problem = load_problem(file)
    instances = load_instances(problem, file, settings["split"], settings["options"])
    _refuse_threads(proc)
    gc.collect()
    closed = mounts and namespaces.close_files([*filter(os.path.isabs, sys.path), str(file.resolve().parent)])
    folder = closed and nursery.isolation["temporary_folder"]
    around = replace(_measured(around), isolation={**nursery.isolation, "temporary_folder": folder})
    gc.collect()
    gc.freeze()
    wire.send(channel, {"event": "ready", "isolation": nursery.isolation})
    Supervisor(
        channel=channel,
        problem=problem,
        instances=instances,
        entry=settings["entry"],
        limits=limits,
        around=around,
        nursery=nursery,
    ).serve()


def _enclosed(around: Surroundings, limits: Limits, wanted: bool, mounts: bool, problem: Path) -> Surroundings:
    """What the nursery can put in force; its own file systems are in force already."""
    if sys.platform == "linux":
        linux.die_with_parent(signal.SIGKILL)
        linux.adopt_orphans()
    proc, own = around.proc, around.isolation["processes"]
    isolation = {
        "processes": own,
        "measured_trees": proc is not None,
        "files": False,
        "shared_memory": own and proc is not None and namespaces.close_ipc(proc),
        **dict.fromkeys(CONFINEMENT, False),
    }
    if mounts and namespaces.enter_mounts():
        isolation["files"] = namespaces.close_files(namespaces.packages(), [str(problem), *namespaces.own_packages()])
    around = replace(_measured(around), isolation=isolation)
    for feature in CONFINEMENT:
        needed = {"temporary_folder": isolation["files"], "user": around.first_user is not None}.get(feature, True)
        isolation[feature] = (wanted or feature not in NAMESPACES) and needed and permitted(feature, around, limits)
    isolation["packages"] = _packages_are_readable(around)
    gc.collect()
    gc.freeze()
    return around


def _measured(around: Surroundings) -> Surroundings:
    """With the memory that this process has now."""
    proc = around.proc
    resident = processes.table(proc)[os.getpid()].resident_bytes if proc is not None else 0
    return replace(around, mapped_bytes=processes.mapped_bytes(proc), resident_bytes=resident)


def _packages_are_readable(around: Surroundings) -> bool:
    """Whether a candidate's user may read the interpreter: root's may be in a home that only root can enter."""
    pid = os.fork()
    if pid == 0:
        try:
            if around.isolation["user"]:
                become(around.user(0))
            for file in (os.__file__, np.__file__):
                os.close(os.open(file, os.O_RDONLY))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _refuse_threads(proc: int | None) -> None:
    if proc is None:
        return
    fd = os.open("self/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=proc)
    try:
        threads = len(os.listdir(fd))
    finally:
        os.close(fd)
    if threads > 1:
        raise UserError(f"the problem's evaluate.py starts threads ({threads} run): candidates are forked from it")


def _mapped_users() -> int:
    """How many user numbers exist here; a container may map few."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text("ascii").splitlines()]
        return min(_MAPPED_USERS, max(int(start) + int(count) for start, _, count in ranges))
    return 1 << 16


if __name__ == "__main__":
    main()
