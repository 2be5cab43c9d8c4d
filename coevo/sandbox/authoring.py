"""`python -m coevo.sandbox.authoring FD PARENT`: the process in which the code that the run trusts runs.

What the author of a problem wrote is not hostile, but it may be wrong: it may never end, change its instances, leave
the interpreter or close its streams. So the run starts this process for it, which forks a child for each evaluation:
every one finds the instances and all else as they were after loading. What the code prints goes to the run's standard
error.

A guardian forks this process and watches, as for the sandbox. A child that takes too long is ended by the kernel.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from coevo.errors import CoevoError, UserError
from coevo.sandbox import linux, wire
from coevo.sandbox.answering import Answers
from coevo.sandbox.examining import watched
from coevo.sandbox.guardian import guard
from coevo.sandbox.limits import Limits
from coevo.sandbox.problem import Problem, load_instances, load_problem
from coevo.sandbox.trust import AuthorLeft, author_code
from coevo.text import print_safely

DONE = 100
"""Exit code of a child that was not needed any more; the author's code may leave with any other."""


def main() -> None:
    """Become guardian and loader. The exit code tells how the loader ended: 128 and the signal, if it was one."""
    channel, run = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    if sys.platform == "linux":
        linux.adopt_orphans()
    loader = os.fork()
    if loader:
        channel.detach()
        code = os.waitstatus_to_exitcode(guard(run, loader))
        os._exit(code if code >= 0 else 128 - code)
    if sys.platform == "linux":
        linux.die_with_parent(signal.SIGKILL)
    first = wire.receive(channel)
    if first is not None:
        _load(channel, cast("dict[str, Any]", first[0]))


def _load(channel: socket.socket, settings: dict[str, Any]) -> None:
    file, split, limits = Path(settings["problem"]), settings["split"], Limits(**settings["limits"])
    # It is the run's standard error, which shows lines as they come.
    cast(Any, sys.stdout).reconfigure(line_buffering=True)
    print_safely()  # an author may print what a candidate gave
    noticed: dict[str, list[str]] = {}
    doing = "the import"

    def begin(work: Callable[[], Any]) -> Any:
        wire.send(channel, {"event": "doing", "what": doing})
        with watched(noticed.setdefault(doing, []), settings["watch"]), author_code(limits):
            return work()

    try:
        problem: Problem = begin(lambda: load_problem(file))
        instances: list[object] = []
        if split is not None:
            doing = f"`instances({split!r})`"
            instances = begin(lambda: load_instances(problem, file, split, settings["options"]))
    except CoevoError as error:
        wire.send(channel, {"event": "failed", "user": isinstance(error, UserError), "message": str(error)})
        return
    except AuthorLeft as error:
        wire.send(channel, {"event": "failed", "user": True, "message": f"{doing} of {str(file)!r} raises {error}"})
        return
    answers = Answers(problem, file, instances, limits)
    gc.collect()
    gc.freeze()
    bound = callable(getattr(problem, "bound", None))
    wire.send(channel, {"event": "ready", "instances": len(instances), "bound": bound, "noticed": noticed})
    Children(channel, answers).serve()


class Children:
    """Forks a child for each evaluation, one ahead of need, and tells how a child ended."""

    def __init__(self, channel: socket.socket, answers: Answers) -> None:
        self._channel, self._answers = channel, answers
        self._places: dict[int, mmap.mmap] = {}
        self._ended: dict[int, tuple[int, int]] = {}

    def serve(self) -> None:
        """Serve until the run closes the channel; no child is left then."""
        spare = self._fork()
        while (message := wire.receive(self._channel)) is not None:
            if "ended" in message[0]:
                wire.send(self._channel, self._end_of(int(str(message[0]["ended"])), bool(message[0]["now"])))
                continue
            pid, end = spare
            with end:
                socket.send_fds(self._channel, [wire.NUMBER.pack(pid)], [end.fileno()])
            self._reap()
            spare = self._fork()
        for pid in self._places:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _fork(self) -> tuple[int, socket.socket]:
        place = mmap.mmap(-1, wire.NUMBER.size)
        ours, theirs = socket.socketpair()
        loader = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                if sys.platform == "linux":
                    linux.die_with_parent(signal.SIGKILL)
                if os.getppid() == loader:
                    self._channel.close()
                    ours.close()
                    self._answers.serve(theirs, lambda index: wire.NUMBER.pack_into(place, 0, index))
            finally:
                os._exit(DONE)
        theirs.close()
        self._places[pid] = place
        return pid, ours

    def _end_of(self, pid: int, now: bool) -> dict[str, object]:
        """Exit code of a child and the instance that it was at; None while it goes on, which it does not from `now`."""
        self._reap()
        if now and pid in self._places:
            # Its end of the connection is closed: what it still does is of no use to anybody.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            self._keep(pid, os.waitpid(pid, 0)[1])
        code, place = self._ended.get(pid, (None, 0))
        return {"code": code, "place": place}

    def _reap(self) -> None:
        for pid in list(self._places):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._keep(pid, status)

    def _keep(self, pid: int, status: int) -> None:
        place, code = self._places.pop(pid), os.waitstatus_to_exitcode(status)
        if code != DONE:
            self._ended[pid] = code, wire.NUMBER.unpack_from(place, 0)[0]
        place.close()


if __name__ == "__main__":
    main()
