"""A small process that outlives the driver: what `kill -9` leaves of a local Ray, it ends and removes.

Ray's own processes notice within seconds that their driver is gone, except for two helpers that go on talking to it
for a minute. Run as a file, with nothing but the standard library: `python watcher.py FOLDER`, and on its standard
input a line `pid start` for each process and at last `done`, if there is nothing to be cleaned up.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_GRACE_SECONDS = 1.0


class Watcher:
    """The process, as the driver holds it."""

    def __init__(self, folder: Path) -> None:
        """Start it.

        Args:
            folder: Ray's, to be removed.
        """
        from coevo.machine.places import interpreter  # here: the process itself knows nothing of coevo

        self._process = subprocess.Popen(
            [interpreter(), "-I", __file__, str(folder)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is not for it
        )
        assert self._process.stdin is not None
        self._input = self._process.stdin

    def watch(self, driver: int) -> None:
        """Tell it of everything else that runs below a process now."""
        for pid in set(below(driver)) - {self._process.pid}:
            if start := started(pid):  # it may have ended meanwhile
                self._input.write(f"{pid} {start}\n")
        self._input.flush()

    def dismiss(self) -> None:
        """End it: the driver has cleaned up by itself."""
        with suppress(BrokenPipeError):
            self._input.write("done\n")
            self._input.close()
        self._process.wait()


def below(parent: int) -> list[int]:
    """All descendants of a process; none where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        fields = _fields(stat)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, left = list[int](), [parent]
    while left:
        more = children.get(left.pop(), [])
        found += more
        left += more
    return found


def started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty if it is gone. With its number it names one process."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return fields[19] if fields else ""


def _fields(stat: Path) -> list[str]:
    """The fields after the name: state, parent, ..."""
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:  # it has ended meanwhile
        return []


def _main(folder: str) -> None:
    watched: list[tuple[int, str]] = []
    for line in sys.stdin:
        if line.strip() == "done":
            return
        pid, start = line.split()
        watched.append((int(pid), start))
    time.sleep(_GRACE_SECONDS)
    for pid, start in watched:
        if started(pid) == start:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main(sys.argv[1])
