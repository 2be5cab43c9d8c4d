"""Files by their hash, and what has changed between two looks at them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from coevo.errors import UserError

Hashes: TypeAlias = dict[str, str]
"""Name of a file → hash of its bytes."""

_MOST_FILES = 1000
_MOST_BYTES = 256 << 20
_MOST_CONTENTS = 10_000
_LEFT_OUT = ("__pycache__", "runs")


def folder_files(folder: Path, leave: Path | None = None) -> Hashes:
    """Name → hash of all files below a folder; none at all where they are too many to be anyone's input.

    Left out are hidden files, `__pycache__`, `runs` and what is below `leave`.
    """
    found: Hashes = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        hidden = any(part.startswith(".") or part in _LEFT_OUT for part in parts)
        if hidden or (leave is not None and path.absolute().is_relative_to(leave)) or not path.is_file():
            continue
        size += path.stat().st_size
        if len(found) == _MOST_FILES or size > _MOST_BYTES:
            return {}
        found["/".join(parts)] = hash_of(path)
    return found


def contents(folder: Path) -> Hashes:
    """Name → whole sha256 of every file below a folder, hidden ones too, but for bytecode, which coevo does not read.

    Raises:
        UserError: they are too many, or too large, to be looked at each time.
    """
    found: Hashes = {}
    size = 0
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or (path.parent.name == "__pycache__" and path.suffix == ".pyc"):
            continue
        size += path.stat().st_size
        if len(found) == _MOST_CONTENTS or size > _MOST_BYTES:
            raise UserError(
                f"folder {str(folder)!r} holds more than {_MOST_CONTENTS} files or {_MOST_BYTES >> 20} MiB, so that "
                "coevo cannot tell whether its code has changed; move the code into a folder of its own"
            )
        found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def hash_of(path: Path) -> str:
    """16 hex digits over a file's bytes; a word where it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        return f"unreadable: {error.strerror}"


def changed(what: str, was: object, is_now: object) -> str:
    """The phrase for anything else that is not as it was."""
    return f"{what} was {was} when the run began and is {is_now}"


def differing(before: Mapping[str, str], now: Mapping[str, str], whose: str) -> list[str]:
    """A phrase for every file that has changed, has come or has gone."""
    words: list[str] = []
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            what = "has changed" if name in before and name in now else "is new" if name in now else "is gone"
            words.append(f"file {name!r} {whose}{what}")
    return words
