"""Places that depend on who runs coevo: the home folder, paths that begin with `~`, and its Python."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from coevo.errors import UserError


def expanded(path: str | Path) -> Path:
    """`path` with a `~` at its beginning replaced.

    Raises:
        UserError: whose home folder that is, cannot be known.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        name = Path(path).parts[0][1:]
        why = f"there is no user {name!r}" if name else _homeless()
        raise UserError(f"{str(path)!r} begins in a home folder, and {why}; give the whole path") from None


def home(otherwise: str) -> Path:
    """The user's home folder.

    Args:
        otherwise: the environment variable that does without one here.

    Raises:
        UserError: there is none.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise UserError(f"{_homeless()}; set HOME, or {otherwise} to a folder that may be written to") from None


def _homeless() -> str:
    return f"the environment variable HOME is not set and user {os.getuid()} has no entry in the system's list of users"


def interpreter() -> str:
    """The path of this Python, to start other processes with.

    Raises:
        UserError: this user may not execute it, as where it lies in the home folder of another one.
    """
    python = sys.executable
    if python and os.access(python, os.X_OK):
        return python
    who = f"user {os.geteuid()}"
    raise UserError(
        f"{who} may not execute {python!r}, the Python that coevo runs in, and coevo starts processes of it; install "
        "both in a folder that this user may enter"
    )
