"""The zygote's loop: forks a process per candidate, watches what they use, kills, reaps and reports.

It has one thread and never waits for a candidate. It passes a candidate's answer on as bytes: only the run
reads it, and distrusts it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from typing import cast

from coevo.sandbox import processes, wire, worker
from coevo.sandbox.candidate import READY, Candidate, Launcher, Surroundings
from coevo.sandbox.limits import MEGABYTE, Limits
from coevo.sandbox.problem import Problem

TICK_SECONDS = 0.05
TAIL_BYTES = 4096
_SWEEP_SECONDS = 5.0


def _wake(_number: int, _frame: object) -> None:
    """Take the signal: without a handler it would not be written to the wake-up pipe."""


class Supervisor:
    """Runs candidates for the run at the other end of `channel` until that end closes."""

    def __init__(
        self,
        channel: socket.socket,
        problem: Problem,
        instances: Sequence[object],
        entry: str,
        limits: Limits,
        around: Surroundings,
    ) -> None:
        self._channel = channel
        self._problem = problem
        self._instances = instances
        self._entry = entry
        self._limits = limits
        self._around = around
        self._launcher = Launcher(around, limits, channel)
        self._running: dict[int, Candidate] = {}
        self._pipes: dict[int, Candidate] = {}
        self._ended: dict[int, tuple[int, resource.struct_rusage]] = {}
        self._poll = select.poll()
        self._measured = 0.0

    def serve(self) -> None:
        """Serve until the run closes the channel; no process is left then."""
        wakeup, wake = os.pipe()
        for fd in (wakeup, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        channel = self._channel.fileno()
        for fd in (channel, wakeup):
            self._poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll(TICK_SECONDS * 1000 if self._running else None):
                if fd == wakeup:
                    os.read(wakeup, 4096)
                elif fd in self._pipes:
                    self._drain(self._pipes[fd], fd)
                elif fd == channel and not self._accept():
                    self._stop()
                    return
            self._measure()
            self._reap()
            for pid in [pid for pid in self._running if pid in self._ended]:
                self._finish(self._running[pid])

    def _accept(self) -> bool:
        message = wire.receive(self._channel)
        if message is None:
            return False
        header, source = message
        number = int(str(header["id"]))
        if "stop" in header:
            for candidate in self._running.values():
                if candidate.number == number:
                    self._kill(candidate, "stopped")
            return True
        stages = cast("list[int]", header.get("stages", []))
        used = {candidate.slot for candidate in self._running.values()}
        slot = next(slot for slot in range(len(used) + 1) if slot not in used)

        def work(result: int) -> None:
            worker.run(source, self._entry, self._problem, self._instances, result, stages)

        try:
            candidate = self._launcher.launch(number, slot, work)
        except OSError as error:
            self._reply({"id": number, "broken": f"no process for a candidate: {error}"})
            return True
        candidate.stages = len(stages)
        self._running[candidate.pid] = candidate
        for pipe in (candidate.result_pipe, candidate.output_pipe):
            self._pipes[pipe] = candidate
            self._poll.register(pipe, select.POLLIN)
        return True

    def _drain(self, candidate: Candidate, pipe: int) -> bool:
        """Read once from a pipe; False when there is nothing more."""
        try:
            data = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self._poll.unregister(pipe)
            del self._pipes[pipe]
            return False
        bound = self._limits.output_kb * 1024
        if pipe == candidate.result_pipe:
            candidate.result += data
            self._pass_on(candidate, data)
            # Cutting an answer into lines makes it longer by a byte each.
            if len(candidate.result) > bound + candidate.lines:
                self._kill(candidate, "result")
                return False
        else:
            candidate.printed += len(data)
            candidate.tail = (candidate.tail + data)[-TAIL_BYTES:]
            if candidate.printed > bound:
                self._kill(candidate, "output")
                return False
        return True

    def _pass_on(self, candidate: Candidate, data: bytes) -> None:
        """Pass on the stages that are whole now. More lines than stages are forged: they go with the answer."""
        lines = min(data.count(b"\n"), candidate.stages - candidate.lines)
        if lines:
            candidate.lines += lines
            end = candidate.result.rindex(b"\n") + 1
            stage = bytes(candidate.result[candidate.passed : end])
            candidate.passed = end
            self._reply({"id": candidate.number, "stage": True}, stage)

    def _measure(self) -> None:
        """Kill what has used more than it may."""
        now = time.monotonic()
        if now - self._measured < TICK_SECONDS or not self._running:
            return
        self._measured = now
        table = processes.table(self._around.proc)
        for pid, candidate in self._running.items():
            members = [table[member] for member in processes.tree(pid, table) if member in table]
            shared = self._around.resident_bytes
            memory = sum(max(0, member.resident_bytes - shared) for member in members)
            cpu = max(processes.cpu_seconds_of(pid), sum(member.cpu_seconds for member in members))
            candidate.cpu_seconds = max(candidate.cpu_seconds, cpu)
            if candidate.cpu_seconds > self._limits.cpu_seconds:
                self._kill(candidate, "cpu")
            elif now - candidate.started > self._limits.wall:
                self._kill(candidate, "wall")
            elif memory > self._limits.memory_mb * MEGABYTE:
                self._kill(candidate, "memory")

    def _kill(self, candidate: Candidate, reason: str) -> None:
        if candidate.reason is None:
            candidate.reason = reason
        with contextlib.suppress(OSError):
            os.kill(candidate.pid, signal.SIGKILL)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                # Anything else is an orphan of a candidate.
                if pid in self._running:
                    self._ended[pid] = status, usage

    def _end_tree(self, candidate: Candidate) -> None:
        """Let no descendant outlive `candidate`; in a process namespace the kernel has seen to it."""
        if self._around.isolation["processes"]:
            return
        with contextlib.suppress(OSError):
            os.killpg(candidate.pid, signal.SIGKILL)
        proc = self._around.proc
        stop = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < stop:
            if self._around.isolation["user"]:
                user = self._around.user(candidate.slot)
                processes.kill_user(user)
                self._reap()
                left = processes.any_of_user(proc, user)
            else:
                # Without a user per candidate only one runs at a time: all descendants are its own.
                left = processes.kill_all(processes.tree(os.getpid(), processes.table(proc))[1:])
                self._reap()
            if not left:
                return
            time.sleep(0.001)

    def _finish(self, candidate: Candidate) -> None:
        """Clear up after `candidate`, whose first process has ended, and report it."""
        status, usage = self._ended[candidate.pid]
        self._end_tree(candidate)
        for pipe in (candidate.result_pipe, candidate.output_pipe):
            while pipe in self._pipes and self._drain(candidate, pipe):
                pass
            if self._pipes.pop(pipe, None) is not None:
                self._poll.unregister(pipe)
            os.close(pipe)
        try:
            ready = os.read(candidate.ready_pipe, 4096)
        except BlockingIOError:
            ready = b""
        os.close(candidate.ready_pipe)
        if candidate.folder is not None:
            shutil.rmtree(candidate.folder, ignore_errors=True)
        del self._running[candidate.pid], self._ended[candidate.pid]
        header: dict[str, object] = {"id": candidate.number, "reason": candidate.reason}
        if ready != READY and candidate.reason is None:
            header["broken"] = ready.decode(errors="replace") or "a candidate's process ended before it began"
        header["code"] = os.waitstatus_to_exitcode(status)
        header["cpu_seconds"] = max(candidate.cpu_seconds, usage.ru_utime + usage.ru_stime)
        header["wall_seconds"] = time.monotonic() - candidate.started
        header["result"] = len(candidate.result)
        self._reply(header, bytes(candidate.result + candidate.tail))

    def _reply(self, header: dict[str, object], payload: bytes = b"") -> None:
        # The run may be gone; the next read of the channel says so.
        with contextlib.suppress(OSError):
            wire.send(self._channel, header, payload)

    def _stop(self) -> None:
        for candidate in list(self._running.values()):
            self._kill(candidate, "closed")
            self._end_tree(candidate)
            if candidate.folder is not None:
                shutil.rmtree(candidate.folder, ignore_errors=True)
