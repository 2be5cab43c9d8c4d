"""Start a program that does not outlive coevo: `python -m coevo.tools.serve.launch PID PROGRAM ARGUMENT …`.

A program of its own and no `preexec_fn`, because coevo has threads by then and what runs between fork and exec must
not wait for a lock that one of them held.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import NoReturn

from coevo.sandbox.linux import die_with_parent


def main(arguments: list[str]) -> NoReturn:
    """Become the program, to get SIGTERM when the parent ends; off Linux it is only ended by a parent that can."""
    with contextlib.suppress(OSError):
        die_with_parent(signal.SIGTERM)
    if os.getppid() != int(arguments[0]):
        sys.exit(1)  # it ended before this one could ask to be told
    os.execv(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
