"""How far the code that the run trusts is trusted: it may be wrong, and then it is stopped and named."""

from __future__ import annotations

import signal
from collections.abc import Generator
from contextlib import contextmanager

from coevo.sandbox.limits import Limits


class AuthorLeft(BaseException):
    """The author's code raised what ends an interpreter: `SystemExit` and the like."""


@contextmanager
def author_code(limits: Limits) -> Generator[None]:
    """Around each call of the author's code: where it takes too long the kernel ends this process, whatever it does.

    Raises:
        AuthorLeft: it raised what is no `Exception`.
    """
    signal.setitimer(signal.ITIMER_PROF, limits.author_seconds)
    signal.setitimer(signal.ITIMER_REAL, limits.author_wall)
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        raise AuthorLeft(f"{type(error).__name__}: {error}".removesuffix(": ")) from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
