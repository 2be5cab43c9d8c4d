"""Whose code is run: what coevo found by itself, in a folder or a stranger's run, is run only if the user wants it.

What the user named (`--plugin`, a configuration file, `--task DIR`) is wanted. For everything else the user is asked
once, at a terminal, or says `--trust`, or `COEVO_TRUST=1`. What was wanted is remembered by its path and its content in
`$XDG_STATE_HOME/coevo/trusted` (`~/.local/state` without one): a file that has changed is another file.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from coevo.errors import UserError
from coevo.files import open_own
from coevo.machine.places import expanded, home
from coevo.text import is_terminal

FLAG = "--trust"
VARIABLE = "COEVO_TRUST"
_ON = frozenset({"1", "true", "yes", "on"})
_STATE = "XDG_STATE_HOME"

_given: set[str] = set()
"""What this process was allowed, also where nothing can be remembered."""
_trusting: list[bool] = []


@contextmanager
def trusting(wanted: bool) -> Generator[None]:
    """Whether the command line says `--trust`."""
    _trusting.append(wanted)
    try:
        yield
    finally:
        _trusting.pop()


def trusted() -> bool:
    """Whether the user wants whatever is found, by `--trust` or by the environment."""
    return any(_trusting) or os.environ.get(VARIABLE, "").strip().lower() in _ON


def remember(path: Path, content: bytes) -> None:
    """Note that the user wants what is at `path` to be run, as it is now."""
    mark = _mark(path, content)
    if mark in _given:
        return
    _given.add(mark)
    # Without a home folder, or with one that cannot be written, it holds for this process.
    with suppress(OSError, UserError):
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_own(folder / mark, "xb") as file:
            file.write(os.fsencode(path.resolve()) + b"\n")


def is_known(path: Path, content: bytes) -> bool:
    """Whether the user has wanted it before, as it is now."""
    mark = _mark(path, content)
    if mark in _given:
        return True
    with suppress(OSError, UserError):
        return (_folder() / mark).is_file()
    return False


def obtain(path: Path, content: bytes, what: str, mend: str) -> None:
    """Go on where the user wants `path`: said before, by option or environment, or now.

    Args:
        path: of what is run.
        content: by which it is known again.
        what: is run, for the reader.
        mend: what allows it, for who is not at a terminal.

    Raises:
        UserError: it is not wanted, or there is nobody to ask.
    """
    if is_known(path, content):
        return
    if trusted():
        print(f"coevo: note: {what} is run, and so it is from now on, as long as it does not change", file=sys.stderr)
    elif not (sys.stdin.isatty() and is_terminal(sys.stderr)):
        raise UserError(f"{what} has never been run by you, and may be a stranger's; if you trust it: {mend}")
    else:
        print(
            f"coevo: {what} has never been run by you, and may be a stranger's; run it? [y/N] ", end="", file=sys.stderr
        )
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise UserError(f"{what} is not run; if you trust it: {mend}")
    remember(path, content)


def _mark(path: Path, content: bytes) -> str:
    place = os.fsencode(path.resolve())
    return digest(place + b"\0" + hashlib.sha256(content).digest())


def digest(content: bytes) -> str:
    """All of its sha256, in hex: who may choose the content must not find another with the same."""
    return hashlib.sha256(content).hexdigest()


def _folder() -> Path:
    state = os.environ.get(_STATE, "").strip()
    return (expanded(state) if state else home(_STATE) / ".local" / "state") / "coevo" / "trusted"
