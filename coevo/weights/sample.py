"""The fixed sample of weights that stands for all of them where looking at all would cost too much."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coevo.weights import noise
from coevo.weights.dtypes import Float32s, Stored, dtype_of
from coevo.weights.selection import TensorSpec

SAMPLE = 1 << 16
"""How many elements are looked at."""

Sample: TypeAlias = list[tuple[TensorSpec, NDArray[np.int64]]]
"""Tensors, each with the flat positions (n,) in it that are looked at, sorted."""


def sample_of(specs: Sequence[TensorSpec]) -> Sample:
    """About SAMPLE positions, uniform over all elements of the tensors and a function of `specs` alone.

    Frozen tensors (scale 0) are not in it: nothing that ES does reaches them.
    """
    specs = [spec for spec in specs if spec.scale != 0]
    ends = np.cumsum([spec.size for spec in specs], dtype=np.int64)
    total = int(ends[-1]) if specs else 0
    if total <= SAMPLE:
        chosen = np.arange(total, dtype=np.int64)
    else:
        counter = np.zeros((4, SAMPLE), dtype=np.uint32)
        counter[0] = np.arange(SAMPLE)
        words = noise.philox4x32(counter, noise.split64(noise.tensor_key("sample of moved"))).astype(np.uint64)
        chosen = np.sort(((words[0] << np.uint64(32) | words[1]) % np.uint64(total)).astype(np.int64))
    owners = np.searchsorted(ends, chosen, side="right")
    return [
        (spec, chosen[owners == i] - (int(ends[i]) - spec.size)) for i, spec in enumerate(specs) if (owners == i).any()
    ]


def gather(sample: Sample, read: Callable[[TensorSpec, NDArray[np.int64]], Stored]) -> Float32s:
    """The sampled weights, float32 (S,), tensor after tensor; what `read` gives (n,) is widened exactly."""
    pieces = [noise.widen(values, dtype_of(values)) for values in (read(*entry) for entry in sample)]
    return np.concatenate([np.empty(0, np.float32), *pieces])
