"""What one candidate may use, and how it gives up the rights of the run that started it."""

from __future__ import annotations

import contextlib
import os
import resource
from dataclasses import dataclass

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one candidate may use before it is killed, and how long the problem's own functions may take.

    Attributes:
        cpu_seconds: processor time of all its processes together; this decides.
        wall_seconds: a generous stop for what sleeps; None means ten times `cpu_seconds` plus 5.
        memory_mb: memory above what numpy and the instances take, of one process and of all together.
        output_kb: what it may print, and apart from that the size of its answer as JSON.
        file_mb: size of one file and of its temporary folder.
        processes: processes and threads alive at once, the candidate's own included.
        author_seconds: processor time of one call of what the run trusts in evaluate.py (its import, `instances`,
            `objective`, `bound`): generous, because it only is for what never ends. For what waits instead there is a
            stop after ten times that plus 5, in wall-clock time.
    """

    cpu_seconds: float = 10.0
    wall_seconds: float | None = None
    memory_mb: int = 512
    output_kb: int = 4096
    file_mb: int = 64
    processes: int = 16
    author_seconds: float = 30.0

    @property
    def wall(self) -> float:
        """The wall-clock stop in seconds."""
        return 10.0 * self.cpu_seconds + 5.0 if self.wall_seconds is None else self.wall_seconds

    @property
    def author_wall(self) -> float:
        """The wall-clock stop of the problem's own functions, in seconds."""
        return 10.0 * self.author_seconds + 5.0


def apply(limits: Limits, mapped_bytes: int) -> None:
    """Set this process's resource limits; `mapped_bytes` is the address space that it starts with.

    The limit on CPU time has whole seconds and starts anew in each child process: it is the backstop of the
    supervisor, which measures the whole tree.
    """
    _cap("RLIMIT_CPU", int(limits.cpu_seconds) + 2)
    _cap("RLIMIT_AS", mapped_bytes + limits.memory_mb * MEGABYTE)
    _cap("RLIMIT_FSIZE", limits.file_mb * MEGABYTE)
    _cap("RLIMIT_NPROC", limits.processes)
    _cap("RLIMIT_NOFILE", 64)
    _cap("RLIMIT_CORE", 0)
    _cap("RLIMIT_MSGQUEUE", 0)
    _cap("RLIMIT_MEMLOCK", 0)


def _cap(name: str, value: int) -> None:
    number = getattr(resource, name, None)
    if number is None:
        return
    _, hard = resource.getrlimit(number)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    # macOS refuses some of these; what is left is in the documentation.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(number, (value, value))


def become(user: int) -> None:
    """Drop root for the unused number `user`, in every slot and for good.

    Raises:
        OSError: this process may not change its user, or the number is not mapped here.
    """
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
