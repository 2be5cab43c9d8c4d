"""The process that does nothing but watch the run and the one process that it has started for it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from coevo.sandbox import namespaces, processes

_WATCH_MILLISECONDS = 500


def guard(run: int, child: int) -> int:
    """Wait for the end of `child`, end it when the process `run` has ended, and then end what it has left.

    Returns:
        The wait status of `child`.
    """
    poll = select.poll()
    if hasattr(os, "pidfd_open"):
        # Where the kernel is too old, the time-out below does it.
        with contextlib.suppress(OSError):
            for pid in (run, child):
                poll.register(os.pidfd_open(pid), select.POLLIN)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if os.getppid() != run:
            os.kill(child, signal.SIGKILL)
            status = os.waitpid(child, 0)[1]
            break
        poll.poll(_WATCH_MILLISECONDS)
    # Without a process namespace what it forked can outlive it; as orphans they are the guardian's.
    proc = namespaces.open_processes(fresh=False)
    while processes.kill_all(processes.tree(os.getpid(), processes.table(proc))[1:]):
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)
    return status
