"""One sha256 for the state of many tensors, whoever holds them.

`weights_digest` is this digest of the fp32 master, `served_digest` the same over tensors read back from what
generates.

Encoding, which no two different sets of tensors share: for each tensor, by sorted name, 8 bytes little-endian
of the length of the name in UTF-8, the name, 8 bytes of the number of dimensions, 8 bytes for each dimension,
and the 32 bytes of the sha256 of the tensor's contents in C order, little-endian. The number format is not
part of it: a digest is compared with digests of one format.
"""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray


def digest_of(arrays: Mapping[str, NDArray[Any]], *, threads: int | None = None) -> str:
    """The digest of named arrays of any shape and dtype, 64 hex digits.

    Arrays are fetched by name in the worker threads, so a mapping may make them on demand; not all are in
    memory at once.

    Args:
        arrays: Contents by name; 16-bit floats that numpy lacks are given as uint16 patterns.
        threads: How many to hash at a time; by default one for each CPU.
    """

    def one(name: str) -> bytes:
        array = arrays[name]
        # ascontiguousarray makes a scalar one-dimensional: the shape is taken before.
        contents = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        encoded = name.encode()
        numbers = [len(encoded), array.ndim, *array.shape]
        sizes = [number.to_bytes(8, "little") for number in numbers]
        return b"".join([sizes[0], encoded, *sizes[1:], hashlib.sha256(contents.data).digest()])

    total = hashlib.sha256()
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        for part in pool.map(one, sorted(arrays)):
            total.update(part)
    return total.hexdigest()
