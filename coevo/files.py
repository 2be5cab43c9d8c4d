"""Files: texts of a user are read alike everywhere; ours are written whole, and never through a link.

A folder of ours may come from a stranger, who may have put a link where coevo writes: whatever is at a name that coevo
chose is opened without following it, and a temporary file has a name that nobody can know before.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import secrets
import stat
import tempfile
import tokenize
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

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


_RANDOM_BYTES = 8
UNFINISHED = ".new"
"""How the name of a file ends that is not written yet."""
LEFTOVERS = f".{'[0-9a-f]' * 2 * _RANDOM_BYTES}{UNFINISHED}"
"""Pattern of the files that a kill may leave."""
MOST_OWN_BYTES = 1 << 30
"""Of a file of a run's folder: one that is larger was made to fill the memory of who reads it."""
OwnMode: TypeAlias = Literal["rb", "r+b", "ab", "a+b", "xb", "x+b"]
_FLAGS: dict[str, int] = {
    "rb": os.O_RDONLY,
    "r+b": os.O_RDWR,
    "ab": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+b": os.O_RDWR | os.O_CREAT | os.O_APPEND,
    "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "x+b": os.O_RDWR | os.O_CREAT | os.O_EXCL,
}


def open_own(path: Path, mode: OwnMode, buffering: int = -1) -> BinaryIO:
    """Open a file at a name that coevo chose: an ordinary file and no link; a FIFO holds nobody up.

    Args:
        path: of the file; folders on the way to it may be links.
        mode: as of `open`.
        buffering: as of `open`.

    Raises:
        OSError: as of `open`, or it is something else than an ordinary file.
    """
    # Without O_NONBLOCK a FIFO would be waited for; an ordinary file does not know the difference.
    flags = _FLAGS[mode] | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if path.is_symlink():
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed here", str(path)) from None
        if error.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, "it is no ordinary file", str(path)) from None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            # What a folder says of itself is told everywhere alike.
            what = errno.EISDIR if stat.S_ISDIR(os.fstat(descriptor).st_mode) else 0
            raise OSError(what or errno.EINVAL, os.strerror(what) if what else "it is no ordinary file", str(path))
        return cast("BinaryIO", os.fdopen(descriptor, cast("Any", mode), buffering))
    except BaseException:
        os.close(descriptor)
        raise


def read_own(path: Path, most: int = MOST_OWN_BYTES) -> bytes:
    """The bytes of a file of a run's folder, none where it is absent.

    Args:
        path: of the file.
        most: bytes that it may have.

    Raises:
        CheckFailedError: it is no file that can be read, or larger.
    """
    try:
        with open_own(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= most:
                return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise CheckFailedError(f"{str(path)!r} cannot be read: {error.strerror}; the run's folder is damaged") from None
    raise CheckFailedError(f"{str(path)!r} has {size:,} bytes, expected {most:,} at most; the run's folder is damaged")


@contextmanager
def replacing(path: Path) -> Generator[BinaryIO]:
    """A file to write that becomes `path` when all of it is on disk: a kill leaves the old file or the new one.

    It is written under a name that nobody can know before; a link at `path` is replaced, never followed.

    Raises:
        OSError: it cannot be written; nothing is left of it.
    """
    temporary = path.with_name(f".{secrets.token_hex(_RANDOM_BYTES)}{UNFINISHED}")
    try:
        with open_own(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text`, so that a kill leaves the old file or the new one.

    Raises:
        OSError: it cannot be written.
    """
    with replacing(path) as file:
        file.write(text.encode(errors="backslashreplace"))


def why_not(path: Path) -> str:
    """Why a folder cannot be made at `path`, found by making one beside it; empty where it can."""
    above = next(p for p in path.absolute().parents if os.path.exists(p))
    if not above.is_dir():
        return f"{str(above)!r} is a file"
    longest = os.pathconf(above, "PC_NAME_MAX")
    if any(len(os.fsencode(part)) > longest for part in path.parts):
        return f"a name may have {longest} bytes"
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".coevo-", dir=above))
    except OSError as error:
        return f"nothing can be made in {str(above)!r}: {error.strerror}"
    return ""
