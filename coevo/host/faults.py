"""Where in an author's code an exception came from: file, line and function."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from coevo.text import printable

_CORE = Path(__file__).parents[1]
_LIBRARY = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))
_INSTALLED = ("site-packages", "dist-packages")


def place(error: BaseException) -> str:
    """`mine.py:12, in tell`: the deepest place that is neither coevo's core, nor Python's, nor an installed library's.

    Where the author is installed too, the deepest place beside the first one; empty where only the core is to blame.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_theirs(frame.filename)]
    own = [frame for frame in frames if not any(part in _INSTALLED for part in Path(frame.filename).parts)]
    beside = [frame for frame in frames if Path(frame.filename).parent == Path(frames[0].filename).parent]
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{Path(error.filename).name}:{error.lineno}"
    if not frames:
        return ""
    frame = (own or beside)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}"


def message(error: BaseException) -> str:
    """An exception in one line that acts on no terminal: its type, and its message where that can be told."""
    try:
        said = printable(" ".join(str(error).split()))
    except Exception:  # noqa: BLE001 - a stranger's __str__
        said = "a message that cannot be told, since its __str__ fails"
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def told(error: BaseException, limit: int = 300) -> str:
    """An exception in one line that acts on no terminal, with its place; the message is cut at `limit` characters."""
    text = message(error)[:limit]
    at = place(error)
    return f"{text} ({at})" if at else text


def _is_theirs(file: str) -> bool:
    path = Path(file)
    if file.startswith("<") or path.is_relative_to(_CORE):
        return False
    installed = any(part in _INSTALLED for part in path.parts)
    return installed or not any(path.is_relative_to(folder) for folder in _LIBRARY)
