"""`rollouts/`: JSON lines, one zstd frame a chunk, appended in plan order and fsynced.

The frame is the unit of saving: a kill in the middle of a write leaves a torn last frame, which is cut off
when the file is opened again, and its chunk runs again whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import zstandard

from coevo.codec import dumps, rollout_from_json, to_json
from coevo.errors import CheckFailedError
from coevo.files import read_own
from coevo.records import Rollout


def _split(data: bytes) -> tuple[list[bytes], int]:
    """Contents of the whole frames at the start of `data`, and where the first torn one begins."""
    contents: list[bytes] = []
    offset = 0
    while offset < len(data):
        decoder = zstandard.ZstdDecompressor().decompressobj()
        try:
            content = decoder.decompress(data[offset:])
        except zstandard.ZstdError:
            break
        if not decoder.eof:
            break
        contents.append(content)
        offset = len(data) - len(decoder.unused_data)
    return contents, offset


def _parse(content: bytes, path: Path) -> tuple[Rollout, ...]:
    try:
        return tuple(rollout_from_json(json.loads(line)) for line in content.splitlines())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CheckFailedError(f"{str(path)!r} holds what is no rollout ({said}); it is damaged") from None


def read_chunks(path: Path) -> list[tuple[Rollout, ...]]:
    """All whole chunks of a file, in order; an absent file has none. A torn last frame is left out.

    Raises:
        CheckFailedError: it is no file that can be read, or holds something else.
    """
    return [_parse(content, path) for content in _split(read_own(path))[0]]


def count_rollouts(path: Path) -> int:
    """How many rollouts the whole chunks of a file hold; raises as `read_chunks`."""
    return sum(content.count(b"\n") for content in _split(read_own(path))[0])


class ChunkFile:
    """Chunks of one batch.

    Usage::

        with ChunkFile(path) as file:
            done = file.chunks            # what an earlier, interrupted run left
            file.append(rollouts)         # the next chunk, on disk when this returns
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        data = read_own(path)
        contents, end = _split(data)
        self.chunks = [_parse(content, path) for content in contents]
        self._file = path.open("ab")
        if end < len(data):
            self._file.truncate(end)
        self._compressor = zstandard.ZstdCompressor(level=6, write_checksum=True)

    def append(self, rollouts: Sequence[Rollout]) -> None:
        """Write one chunk.

        Raises:
            CheckFailedError: it is not the next chunk of this file.
        """
        expected = len(self.chunks)
        if rollouts[0].provenance.chunk != expected:
            raise CheckFailedError(f"chunk {rollouts[0].provenance.chunk} of {self.path.name} comes before {expected}")
        lines = [dumps(to_json(r)) for r in rollouts]
        self._file.write(self._compressor.compress(("\n".join(lines) + "\n").encode()))
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
