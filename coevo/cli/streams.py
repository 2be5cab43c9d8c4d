"""Standard output and standard error of the process: where one is closed or full there is a line, and no traceback."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from coevo.errors import RunError

OUT, ERR = 1, 2


def secure() -> None:
    """Replace the process's two streams by ones that fail in words (output), or not at all (what is said besides).

    Descriptors that were closed are taken first: the next file to be opened would get the number, and what is printed.
    """
    closed = {number: _is_closed(number) for number in (OUT, ERR)}
    while (taken := os.open(os.devnull, os.O_RDWR)) <= ERR:
        pass
    os.close(taken)
    sys.stdout = _stream(_Output(closed[OUT]), sys.stdout, "replace")
    sys.stderr = _stream(_Aside(ERR, "w", closefd=False), sys.stderr, "backslashreplace", at_once=True)


def silence(stream: TextIO) -> None:
    """Nothing more goes there: the interpreter flushes once more at its end, which would fail again."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    if isinstance(raw, _Output):
        raw.is_closed = False
    try:
        descriptor = stream.fileno()
    except OSError:
        return  # one of a test, which no interpreter flushes
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


class _Output(io.FileIO):
    """What a command was asked for. If it cannot be written, the command has failed."""

    def __init__(self, is_closed: bool) -> None:
        super().__init__(OUT, "w", closefd=False)
        self.is_closed = is_closed

    def write(self, data: Any, /) -> int:
        try:
            if self.is_closed:
                raise OSError(errno.EBADF, "it is closed")
            return super().write(data) or 0
        except BrokenPipeError:
            raise
        except OSError as error:
            raise RunError(f"standard output cannot be written: {error.strerror}") from None


class _Aside(io.FileIO):
    """What is said by the way. A disk that is full ends no run: there is nobody left to tell."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data) or 0
        except OSError:
            return len(data)


def _stream(raw: io.FileIO, old: TextIO | None, errors: str, *, at_once: bool = False) -> TextIO:
    make: Callable[..., TextIO] = io.TextIOWrapper
    encoding = "utf-8" if old is None else old.encoding
    by_line = at_once or (old is not None and old.isatty())
    return make(io.BufferedWriter(raw), encoding, errors, line_buffering=by_line, write_through=at_once)


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False
