"""Standard output is for what a command has to say: what else prints, such as a plugin, prints to standard error."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO

_kept: list[TextIO] = []


@contextmanager
def reserved() -> Generator[None]:
    """Send what is printed inside to standard error, unless it is written to `standard_output()`."""
    _kept.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


def standard_output() -> TextIO:
    """The command's own standard output: for loggers that show a run."""
    return _kept[-1] if _kept else sys.stdout
