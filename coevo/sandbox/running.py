"""One candidate that runs, as the zygote sees it: two processes, their pipes, and what came through them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from coevo.sandbox.limits import MEGABYTE, Limits
from coevo.sandbox.processes import Process, cpu_seconds_of, tree

TAIL_BYTES = 4096


class Pipes:
    """Pipes by name; whatever is not kept is closed in the end.

    Attributes:
        ours: the ends to read.
        theirs: the ends to write.
    """

    def __init__(self, *names: str) -> None:
        """Open a pipe for each name.

        Raises:
            OSError: there is no room for more descriptors.
        """
        self.ours: dict[str, int] = {}
        self.theirs: dict[str, int] = {}
        try:
            for name in names:
                self.ours[name], self.theirs[name] = os.pipe()
        except OSError:
            self.__exit__()
            raise

    def keep(self, *names: str) -> list[int]:
        """Ends to read that stay open; reading from them does not wait."""
        kept = [self.ours.pop(name) for name in names]
        for fd in kept:
            os.set_blocking(fd, False)
        return kept

    def __enter__(self) -> Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (*self.ours.values(), *self.theirs.values()):
            os.close(fd)


@dataclass(slots=True)
class Running:
    """A candidate's own process and the one that runs `solve` with it.

    Attributes:
        number: by which the run knows it.
        slot: its place, which no other has at the same time.
        player: the candidate's process; None where its source is vetted and runs in that of `solve`.
        solver: the process of `solve`.
        result_pipe: what the solver answers.
        output_pipe: what either prints.
        ready_pipe: whether both were confined.
        folder: the candidate's, to remove afterwards; None where it is mounted.
        stages: lines that may be sent ahead of its answer.
        lines: lines that were.
        passed: bytes of them that went on to the run.
        played: exit code and processor time of the player, once it has ended.
        reason: why it was killed.
    """

    number: int
    slot: int
    player: int | None
    solver: int
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
    played: tuple[int, float] | None = None
    reason: str | None = None
    _own: dict[int, float] = field(default_factory=dict[int, float])
    _most: float = 0.0

    @property
    def pipes(self) -> tuple[int, int]:
        """Those that are read while it runs."""
        return self.result_pipe, self.output_pipe

    @property
    def cpu_seconds(self) -> float:
        """Processor time that was seen, of all processes.

        Whoever ignores its children's end hides what they used from the sums of the kernel, so each also counts with
        the most that it was seen to have.
        """
        return max(self._most, sum(self._own.values()))

    def kill(self, reason: str) -> None:
        """End both processes; the first reason counts."""
        if self.reason is None:
            self.reason = reason
        self.end_player()
        with contextlib.suppress(OSError):
            os.kill(self.solver, signal.SIGKILL)

    def end_player(self) -> None:
        """End the candidate's process, which may have ended already."""
        if self.played is None and self.player is not None:
            with contextlib.suppress(OSError):
                os.kill(self.player, signal.SIGKILL)

    def measure(
        self, table: dict[int, Process], shared: dict[int, int], orphans: Iterable[int], limits: Limits
    ) -> str | None:
        """Which limit it is over, if any.

        Args:
            table: all processes.
            shared: by first process, the memory in bytes that it was forked with.
            orphans: processes of the candidate that may be no descendants of its first one any more.
            limits: that hold.
        """
        memory, whole = 0, 0.0
        for first in filter(None, (self.player, self.solver)):
            members = tree(first, table)
            for pid in {*members, *orphans} if first == self.player else members:
                process = table.get(pid)
                if process is not None:
                    memory += max(0, process.resident_bytes - shared[first])
                    own = max(process.own_seconds, cpu_seconds_of(pid))
                    self._own[pid] = max(self._own.get(pid, 0.0), own)
                    whole += own + process.waited_seconds
        self._most = max(self._most, whole)
        if self.cpu_seconds > limits.cpu_seconds:
            return "cpu"
        if time.monotonic() - self.started > limits.wall:
            return "wall"
        if memory > limits.memory_mb * MEGABYTE:
            return "memory"
        return None
