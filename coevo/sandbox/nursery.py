"""The process that candidates are forked from: it has numpy, and no problem and no answer of another candidate.

It is a child of the zygote's, with file systems of its own. What it knows of a candidate is its slot and its
descriptors: the source goes past it, through a pipe.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
from collections import deque
from typing import Any

from coevo.sandbox import player
from coevo.sandbox.candidate import Launcher, Surroundings

_MESSAGE = 1 << 12
_DESCRIPTORS = 4


def _wake(_number: int, _frame: object) -> None:
    """Take the signal: without a handler it would not be written to the wake-up pipe."""


def serve(channel: socket.socket, around: Surroundings, launcher: Launcher) -> None:
    """Say what there is, fork candidates and tell of their ends, until the zygote closes its end."""
    ready = {"isolation": dict(around.isolation), "resident_bytes": around.resident_bytes}
    channel.send(json.dumps(ready).encode())
    wakeup, wake = os.pipe()
    for fd in (wakeup, wake):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, _wake)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    poll = select.poll()
    for fd in (channel.fileno(), wakeup):
        poll.register(fd, select.POLLIN)
    running: set[int] = set()
    while True:
        for fd, _ in poll.poll():
            if fd == wakeup:
                os.read(wakeup, _MESSAGE)
                continue
            message, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE, _DESCRIPTORS)
            if not message:
                return
            _launch(channel, launcher, json.loads(message)["slot"], descriptors, running)
        _reap(channel, running)


def _launch(channel: socket.socket, launcher: Launcher, slot: int, descriptors: list[int], running: set[int]) -> None:
    ready, output, calls, answers = descriptors
    try:
        pid, folder = launcher.launch(slot, ready, output, (calls, answers), player.play)
    except OSError as error:
        channel.send(json.dumps({"refused": str(error)}).encode())
    else:
        running.add(pid)
        channel.send(json.dumps({"pid": pid, "folder": folder}).encode())
    finally:
        for fd in descriptors:
            os.close(fd)


def _reap(channel: socket.socket, running: set[int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            # Anything else is an orphan of a candidate.
            if pid in running:
                running.remove(pid)
                cpu = usage.ru_utime + usage.ru_stime
                code = os.waitstatus_to_exitcode(status)
                channel.send(json.dumps({"ended": pid, "code": code, "cpu_seconds": cpu}).encode())


class Nursery:
    """The zygote's end of it.

    Attributes:
        pid: of the process.
        channel: to it.
        isolation: what it found to be permitted.
        resident_bytes: its memory, which a candidate shares until it writes.
    """

    def __init__(self, pid: int, channel: socket.socket) -> None:
        """Take over the process and wait until it is ready.

        Raises:
            EOFError: it ended instead.
        """
        self.pid, self.channel = pid, channel
        self._ends: deque[dict[str, Any]] = deque()
        ready = self._receive()
        self.isolation: dict[str, bool] = ready["isolation"]
        self.resident_bytes = int(ready["resident_bytes"])

    def launch(self, slot: int, descriptors: list[int]) -> tuple[int, str | None]:
        """Have a candidate forked; its number, and the folder to remove afterwards.

        Args:
            slot: which it has alone.
            descriptors: for readiness, output, calls and answers; they are its own from now on.

        Raises:
            OSError: the system has no room for another process.
            EOFError: the nursery ended.
        """
        try:
            socket.send_fds(self.channel, [json.dumps({"slot": slot}).encode()], descriptors)
        except BrokenPipeError:
            raise EOFError from None
        while "ended" in (message := self._receive()):
            self._ends.append(message)
        if "refused" in message:
            raise OSError(message["refused"])
        return message["pid"], message["folder"]

    def ends(self) -> list[dict[str, Any]]:
        """Candidates that have ended: `ended`, which is the number, `code` and `cpu_seconds`; does not wait.

        Raises:
            EOFError: the nursery ended.
        """
        with contextlib.suppress(BlockingIOError):
            while True:
                self._ends.append(self._receive(socket.MSG_DONTWAIT))
        found, self._ends = list(self._ends), deque()
        return found

    def _receive(self, flags: int = 0) -> dict[str, Any]:
        message = self.channel.recv(_MESSAGE, flags)
        if not message:
            raise EOFError
        return json.loads(message)
