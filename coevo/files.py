"""Text files: those of a user are read alike everywhere, in UTF-8 with or without a mark; ours are written whole."""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
import tokenize
import tomllib
from pathlib import Path
from typing import Any

from coevo.errors import CheckFailedError, UserError

MOST_BYTES = 64 * 2**20
"""Of a file that somebody may have written by hand, or that is read whole into memory to be looked at."""
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_UTF_8 = ("utf-8", "utf-8-sig")
# UTF-32's mark begins with UTF-16's, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32 (little-endian)"),
    (codecs.BOM_UTF32_BE, "UTF-32 (big-endian)"),
    (codecs.BOM_UTF16_LE, "UTF-16 (little-endian)"),
    (codecs.BOM_UTF16_BE, "UTF-16 (big-endian)"),
)


def read_regular(path: Path, most: int | None = MOST_BYTES) -> bytes:
    """The bytes of a regular file: reading what is none may never end.

    Args:
        path: of the file.
        most: bytes that it may have; None for any number.

    Raises:
        OSError: it cannot be read, is no regular file or has more bytes; `strerror` says so.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    if what := _KINDS.get(kind):
        raise OSError(errno.EINVAL, f"it is {what}, and should be a file")
    with path.open("rb") as file:
        # Files of /proc say that they have no bytes, so their size is seen by reading.
        data = file.read() if most is None else file.read(most + 1)
    if most is not None and len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most // 2**20} MiB")
    return data


def read_toml(path: Path, what: str = "") -> dict[str, Any]:
    """The content of a TOML file that a user wrote; arguments as of `read_text`.

    Raises:
        UserError: it cannot be read, or is not TOML.
    """
    text = read_text(path, what)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{str(path)!r} is not valid TOML: it is nested too deeply") from None
    except ValueError as error:  # of a whole number with thousands of digits, too
        raise UserError(f"{str(path)!r} is not valid TOML: {error}") from None


def read_text(path: Path, what: str = "") -> str:
    r"""The text of a file that a user wrote, without a byte-order mark, lines ended by `\n`.

    Args:
        path: of the file.
        what: it is called where it cannot be read, such as `the configuration file`.

    Raises:
        UserError: it cannot be read, or is not UTF-8; says where, and which encoding it seems to have.
    """
    return _decoded(_bytes(path, what), path).replace("\r\n", "\n").replace("\r", "\n")


def check_source(path: Path) -> None:
    """Refuse a file that is no Python source for its encoding, which Python itself says less clearly.

    A source may declare another encoding than UTF-8 in its first lines, as Python allows.

    Raises:
        UserError: as `read_text`.
    """
    data = _bytes(path)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError:
        encoding = "utf-8"
    if encoding in _UTF_8:
        _decoded(data, path)


def mark_of(path: Path) -> str:
    """What the byte-order mark of a file says: `UTF-8`, `UTF-16 (little-endian)` …, or nothing without one."""
    try:
        with path.open("rb") as file:
            return _mark(file.read(4))
    except OSError:
        return ""


def _bytes(path: Path, what: str = "") -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise UserError(f"cannot read {what}{what and ' '}{str(path)!r}: {error.strerror or error}") from None


def _mark(data: bytes) -> str:
    if data.startswith(codecs.BOM_UTF8):
        return "UTF-8"
    return next((name for mark, name in _MARKS if data.startswith(mark)), "")


def _decoded(data: bytes, path: Path) -> str:
    mark = _mark(data)
    if mark not in ("", "UTF-8"):
        raise _refused(path, f"by its byte-order mark it is {mark}")
    if (zero := data.find(b"\0")) >= 0:
        raise _refused(path, f"it has a zero byte in {_place(data, zero)}, as UTF-16 and binary files have")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = error.object[error.start : error.start + 1]
        seems = byte.decode("cp1252", errors="ignore") or byte.decode("latin-1")
        hint = f", which is {seems!r} in Latin-1 (Windows-1252)" if seems.isprintable() else ""
        raise _refused(path, f"byte 0x{byte.hex()} in {_place(error.object, error.start)}{hint}") from None


def _place(data: bytes, at: int) -> str:
    lines = data[:at].split(b"\n")
    return f"line {len(lines)}, column {len(lines[-1]) + 1}"


def _refused(path: Path, why: str) -> UserError:
    return UserError(f"{str(path)!r} is not UTF-8: {why}; save it as UTF-8")


def read_own(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file of a run's folder, at most `most` of them; none where it is absent.

    Raises:
        CheckFailedError: it is no file that can be read.
    """
    try:
        return read_regular(path, most)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CheckFailedError(f"{str(path)!r} cannot be read: {error.strerror}; the run's folder is damaged") from None


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text`, so that a kill leaves the old file or the new one."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
