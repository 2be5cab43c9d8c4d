"""SIGTERM as Ctrl-C: whoever catches the one has caught the other."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


def interrupt(number: int, frame: FrameType | None) -> None:
    """A signal's handler that does what Ctrl-C does."""
    signal.raise_signal(signal.SIGINT)


@contextmanager
def sigterm_interrupts() -> Generator[None]:
    """Let SIGTERM raise `KeyboardInterrupt` within; outside of the main thread nothing is changed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell starts what a script puts in the background; SIGTERM, which becomes SIGINT here, would be lost too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
