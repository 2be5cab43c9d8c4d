"""SIGTERM ends a run as Ctrl-C does, and ends it even where something will not be interrupted.

A task, an updater or an engine may be in the midst of a call that never returns, in the run's own thread or in another.
Then the process leaves by itself after `GRACE_SECONDS`. Nothing is lost by that which a `kill -9` would not lose: the
chunks in flight.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Generator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from types import FrameType

GRACE_SECONDS = 10.0
INTERRUPTED = 130
"""Exit code after Ctrl-C, and after SIGTERM too: the run is resumable either way."""

_timers: list[threading.Timer] = []


@contextmanager
def terminating(last_words: str) -> Generator[None]:
    """Take SIGTERM as Ctrl-C inside; `last_words` are said where the process has to leave by itself.

    Outside of the main thread, which alone hears signals, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what a script puts in the background; SIGTERM, which becomes SIGINT here, would be lost too.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(number: int, frame: FrameType | None) -> None:
        leave_soon(last_words)
        signal.raise_signal(signal.SIGINT)

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def leave_soon(last_words: str = "") -> None:
    """Leave the process with `INTERRUPTED` after `GRACE_SECONDS`, unless it ends before, or `staying` does."""

    def leave() -> None:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        with suppress(OSError):
            os.write(2, f"{last_words}\n".encode() if last_words else b"")
        os._exit(INTERRUPTED)

    timer = threading.Timer(GRACE_SECONDS, leave)
    timer.daemon = True
    timer.start()
    _timers.append(timer)


def leave_at_once() -> None:
    """From now on a signal ends the process without a word: all is said, and only threads are waited for."""

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(INTERRUPTED)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, leave)


@contextmanager
def staying() -> Generator[None]:
    """Around a whole run: if it ends in time, what the process does after it is its own affair."""
    try:
        yield
    finally:
        while _timers:
            _timers.pop().cancel()


@contextmanager
def ending(threads: Executor) -> Generator[None]:
    """Wait in the end for what runs in `threads`, but not after a failure or an interrupt: it may never end."""
    try:
        yield
    except BaseException:
        threads.shutdown(wait=False, cancel_futures=True)
        raise
    threads.shutdown(cancel_futures=True)
