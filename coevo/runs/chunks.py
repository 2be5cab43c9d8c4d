"""`rollouts/`: JSON lines, one zstd frame a chunk, appended in plan order and fsynced.

The frame is the unit of saving: a kill in the middle of a write leaves a torn last frame, which is cut off
when the file is opened again, and its chunk runs again whole.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import zstandard

from coevo.errors import CheckFailedError, RunError
from coevo.files import open_own, read_own
from coevo.records import Rollout
from coevo.runs.codec import dumps, rollout_from_json, to_json
from coevo.runs.forms import ROLLOUT, check

MOST_BYTES = 256 << 20
"""Of a chunk's JSON: a stranger's frame of a kilobyte could hold gigabytes of nothing."""
_MOST_IN_ALL = 4 << 30
"""Of a file's JSON."""
_WINDOW = 1 << 27
"""Bytes that a decoder may keep: those of any frame that coevo writes."""
_STEP = 1 << 12
"""Compressed bytes that are taken at once: no more than 128 MB can come of them."""


def _split(path: Path) -> tuple[list[tuple[Rollout, ...]], int, int]:
    """Chunks of the whole frames at the start of a file, where the first torn one begins, and how long the file is."""
    data = memoryview(read_own(path))
    chunks: list[tuple[Rollout, ...]] = []
    offset = in_all = 0
    while offset < len(data) and (found := _frame(data[offset:], path)) is not None:
        content, size = found
        in_all += len(content)
        if in_all > _MOST_IN_ALL:
            raise _damaged(path, f"holds more than {_MOST_IN_ALL:,} bytes")
        chunks.append(_parse(content, path))
        offset += size
    return chunks, offset, len(data)


def _frame(data: memoryview, path: Path) -> tuple[bytes, int] | None:
    """The content of the frame at the start of `data` and the frame's own length, None where it is torn."""
    decoder = zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()
    parts: list[bytes] = []
    size = 0
    for at in range(0, len(data), _STEP):
        try:
            parts.append(decoder.decompress(data[at : at + _STEP]))
        except zstandard.ZstdError:
            return None
        size += len(parts[-1])
        if size > MOST_BYTES:
            raise _damaged(path, f"has a chunk of more than {MOST_BYTES:,} bytes")
        if decoder.eof:
            return b"".join(parts), min(at + _STEP, len(data)) - len(decoder.unused_data)
    return None


def _parse(content: bytes, path: Path) -> tuple[Rollout, ...]:
    found: list[Rollout] = []
    for text in io.BytesIO(content):
        try:
            line = json.loads(text)
            check(line, ROLLOUT, f"a rollout of {str(path)!r}")
            found.append(rollout_from_json(line))
        except (ValueError, TypeError, RecursionError) as error:
            said = " ".join(str(error).split())[:100]
            raise _damaged(path, f"holds what is no rollout ({said})") from None
    return tuple(found)


def _damaged(path: Path, what: str) -> CheckFailedError:
    return CheckFailedError(f"{str(path)!r} {what}; the run's folder is damaged")


def read_chunks(path: Path) -> list[tuple[Rollout, ...]]:
    """All whole chunks of a file, in order; an absent file has none. A torn last frame is left out.

    Raises:
        CheckFailedError: it is no file that can be read, or a frame holds something else than rollouts.
    """
    return _split(path)[0]


def count_rollouts(path: Path) -> int:
    """How many rollouts the whole chunks of a file hold; raises as `read_chunks`."""
    return sum(map(len, read_chunks(path)))


class ChunkFile:
    """Chunks of one batch.

    Usage::

        with ChunkFile(path) as file:
            done = file.chunks            # what an earlier, interrupted run left
            file.append(rollouts)         # the next chunk, on disk when this returns
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks, end, size = _split(path)
        self._file = open_own(path, "ab")
        if end < size:
            self._file.truncate(end)
        self._compressor = zstandard.ZstdCompressor(level=6, write_checksum=True)

    def append(self, rollouts: Sequence[Rollout]) -> None:
        """Write one chunk.

        Raises:
            CheckFailedError: it is not the next chunk of this file.
            RunError: it is longer than a reader takes.
        """
        expected = len(self.chunks)
        if rollouts[0].provenance.chunk != expected:
            raise CheckFailedError(f"chunk {rollouts[0].provenance.chunk} of {self.path.name} comes before {expected}")
        text = "".join(dumps(to_json(r)) + "\n" for r in rollouts).encode()
        if len(text) > MOST_BYTES:
            raise RunError(
                f"a chunk of {len(rollouts)} rollouts has {len(text):,} bytes, expected {MOST_BYTES:,} at most; "
                "lower rollouts.chunk"
            )
        self._file.write(self._compressor.compress(text))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.chunks.append(tuple(rollouts))

    def discard(self) -> None:
        """Forget all chunks; the file is removed."""
        self.chunks = []
        self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
