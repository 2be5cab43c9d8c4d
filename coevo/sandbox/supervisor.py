"""The zygote's loop: starts two processes per candidate, watches what they use, kills, reaps and reports.

It has one thread and never waits for a candidate. It passes answers on as bytes: only the run reads them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import cast

from coevo.sandbox import processes, wire, worker
from coevo.sandbox.candidate import READY, Launcher, Surroundings
from coevo.sandbox.limits import MEGABYTE, Limits
from coevo.sandbox.nursery import Nursery
from coevo.sandbox.problem import Problem
from coevo.sandbox.running import TAIL_BYTES, Pipes, Running

TICK_SECONDS = 0.05
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
        nursery: Nursery,
    ) -> None:
        self._channel = channel
        self._problem = problem
        self._instances = instances
        self._entry = entry
        self._limits = limits
        self._around = around
        self._nursery = nursery
        self._launcher = Launcher(around, limits, channel)
        self._running: dict[int, Running] = {}
        self._pipes: dict[int, Running] = {}
        self._solved: dict[int, tuple[int, resource.struct_rusage]] = {}
        self._poll = select.poll()
        self._measured = 0.0

    def serve(self) -> None:
        """Serve until the run closes the channel or the nursery ends; no process is left then."""
        with contextlib.suppress(EOFError):
            self._serve()
        self._stop()

    def _serve(self) -> None:
        wakeup, wake = os.pipe()
        for fd in (wakeup, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, _wake)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        channel, nursery = self._channel.fileno(), self._nursery.channel.fileno()
        for fd in (channel, nursery, wakeup):
            self._poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in self._poll.poll(TICK_SECONDS * 1000 if self._running else None):
                if fd == wakeup:
                    os.read(wakeup, 4096)
                elif fd in self._pipes:
                    self._drain(self._pipes[fd], fd)
                elif fd == channel and not self._accept():
                    return
            self._measure()
            self._reap()
            for candidate in list(self._running.values()):
                if candidate.solver in self._solved:
                    if candidate.played is None:
                        candidate.end_player()
                    else:
                        self._finish(candidate)

    def _accept(self) -> bool:
        message = wire.receive(self._channel)
        if message is None:
            return False
        header, source = message
        number = int(str(header["id"]))
        if "stop" in header:
            for candidate in self._running.values():
                if candidate.number == number:
                    candidate.kill("stopped")
            return True
        try:
            start = self._start_vetted if header["vetted"] else self._start
            candidate = start(number, source, cast("list[int]", header["stages"]), bool(header["watch"]))
        except OSError as error:
            self._reply({"id": number, "broken": f"no process for a candidate: {error}"})
            return True
        self._running[candidate.solver] = candidate
        for pipe in candidate.pipes:
            self._pipes[pipe] = candidate
            self._poll.register(pipe, select.POLLIN)
        return True

    def _slot(self) -> int:
        used = {candidate.slot for candidate in self._running.values()}
        return next(slot for slot in range(len(used) + 1) if slot not in used)

    def _start(self, number: int, source: bytes, stages: list[int], watch: bool) -> Running:
        """Start the candidate's process and that of `solve`, which calls it."""
        most = self._limits.memory_mb * MEGABYTE
        with Pipes("ready", "output", "result", "calls", "answers") as pipes:
            slot, ends = self._slot(), pipes.theirs
            player, folder = self._nursery.launch(
                slot, [ends["ready"], ends["output"], pipes.ours["calls"], ends["answers"]]
            )
            channels = [ends["result"], ends["calls"], pipes.ours["answers"]]
            try:
                solver, _ = self._launcher.launch(
                    slot + self._around.slots, ends["ready"], ends["output"], channels,
                    self._work(source, most, stages, watch), enclosed=False,
                )  # fmt: skip
            except OSError:
                with contextlib.suppress(OSError):
                    os.kill(player, signal.SIGKILL)
                raise
            result, output, ready = pipes.keep("result", "output", "ready")
        return Running(
            number=number,
            slot=slot,
            player=player,
            solver=solver,
            result_pipe=result,
            output_pipe=output,
            ready_pipe=ready,
            folder=folder,
            stages=len(stages),
        )

    def _start_vetted(self, number: int, source: bytes, stages: list[int], watch: bool) -> Running:
        """Start a process of `solve` in which the candidate is, too."""
        with Pipes("ready", "output", "result") as pipes:
            slot, ends = self._slot(), pipes.theirs
            solver, folder = self._launcher.launch(
                slot, ends["ready"], ends["output"], [ends["result"]], self._work(source, None, stages, watch)
            )
            result, output, ready = pipes.keep("result", "output", "ready")
        return Running(
            number=number,
            slot=slot,
            player=None,
            solver=solver,
            result_pipe=result,
            output_pipe=output,
            ready_pipe=ready,
            folder=folder,
            stages=len(stages),
            played=(0, 0.0),
        )

    def _work(self, source: bytes, most: int | None, stages: list[int], watch: bool) -> Callable[[], None]:
        return lambda: worker.run(source, self._entry, self._problem, self._instances, most, stages, watch)

    def _drain(self, candidate: Running, pipe: int) -> bool:
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
                candidate.kill("result")
                return False
        else:
            candidate.printed += len(data)
            candidate.tail = (candidate.tail + data)[-TAIL_BYTES:]
            if candidate.printed > bound:
                candidate.kill("output")
                return False
        return True

    def _pass_on(self, candidate: Running, data: bytes) -> None:
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
        # In a process namespace a candidate's first process adopts its orphans; elsewhere its user gives them away.
        apart = self._around.isolation["user"] and not self._around.isolation["processes"]
        owners = processes.owners(self._around.proc) if apart else {}
        for candidate in self._running.values():
            user = self._around.user(candidate.slot)
            orphans = [pid for pid, owner in owners.items() if owner == user]
            shared = {candidate.solver: self._around.resident_bytes}
            if candidate.player is not None:
                shared[candidate.player] = self._nursery.resident_bytes
            if reason := candidate.measure(table, shared, orphans, self._limits):
                candidate.kill(reason)

    def _reap(self) -> None:
        for end in self._nursery.ends():
            for candidate in self._running.values():
                if candidate.player == end["ended"]:
                    candidate.played = end["code"], end["cpu_seconds"]
                    # Its children may hold its pipes open, for which `solve` waits.
                    self._end_tree(candidate)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    return
                # Anything else is an orphan of the author's code.
                if pid in self._running:
                    self._solved[pid] = status, usage

    def _end_tree(self, candidate: Running) -> None:
        """Let no descendant outlive a candidate; in a process namespace the kernel has seen to it."""
        if self._around.isolation["processes"] or candidate.player is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(candidate.player, signal.SIGKILL)
        proc = self._around.proc
        stop = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < stop:
            if self._around.isolation["user"]:
                user = self._around.user(candidate.slot)
                processes.kill_user(user)
                left = processes.any_of_user(proc, user)
            else:
                # Without a user per candidate only one runs at a time: all descendants are its own.
                left = processes.kill_all(processes.tree(self._nursery.pid, processes.table(proc))[1:])
            if not left:
                return
            time.sleep(0.001)

    def _finish(self, candidate: Running) -> None:
        """Clear up after `candidate`, whose processes have ended, and report it."""
        status, usage = self._solved.pop(candidate.solver)
        assert candidate.played is not None
        with contextlib.suppress(OSError):
            os.killpg(candidate.solver, signal.SIGKILL)
        for pipe in candidate.pipes:
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
        self._clear(candidate)
        del self._running[candidate.solver]
        code, played = candidate.played
        solved = os.waitstatus_to_exitcode(status)
        header: dict[str, object] = {"id": candidate.number, "reason": candidate.reason}
        confined = READY * (1 if candidate.player is None else 2)
        if ready != confined and candidate.reason is None:
            said = ready.replace(READY, b"").decode(errors="replace")
            header["broken"] = said or "a candidate's process ended before it began"
        header["code"] = code if solved == worker.LEFT else solved
        header["cpu_seconds"] = max(candidate.cpu_seconds, played + usage.ru_utime + usage.ru_stime)
        header["wall_seconds"] = time.monotonic() - candidate.started
        header["result"] = len(candidate.result)
        self._reply(header, bytes(candidate.result + candidate.tail))

    def _clear(self, candidate: Running) -> None:
        if candidate.folder is not None:
            with contextlib.suppress(OSError):
                processes.remove(candidate.folder)

    def _reply(self, header: dict[str, object], payload: bytes = b"") -> None:
        # The run may be gone; the next read of the channel says so.
        with contextlib.suppress(OSError):
            wire.send(self._channel, header, payload)

    def _stop(self) -> None:
        for candidate in self._running.values():
            candidate.kill("closed")
            self._end_tree(candidate)
            self._clear(candidate)
