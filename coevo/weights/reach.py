"""How much of what was meant reached the weights that generate: told of every update, on the fixed sample.

Usage, by an engine:

    reach = Reach(master, dtype_of_tensor, read)   # while the base is served
    with reach.update():
        master.apply(terms)
    reach.told()                                   # {"cosine": ..., "cosine_run": ..., ...}

An update is made in fp32 and served in a format that may not hold it: in bf16 a weight moves by steps of 0.4 %
of its size or not at all. The cosine between the change of the master and the change of what is served says how
much of the direction is left. For one update it may be far below 1 and nothing be lost, since the master keeps
what has not shown yet; then the cosine of the whole run approaches 1. Where served weights are their own and
only copy, what one update loses is gone, and both stay low.
"""

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from coevo.weights import noise
from coevo.weights.dtypes import DType, Float32s, Stored
from coevo.weights.master import Master
from coevo.weights.sample import gather
from coevo.weights.selection import TensorSpec

Read: TypeAlias = Callable[[TensorSpec, NDArray[np.int64]], Stored]
"""Gives elements of a tensor at flat positions (n,) as they generate now, (n,)."""


@dataclass(frozen=True, slots=True)
class Look:
    """The sampled weights at one moment.

    Attributes:
        meant: The master's, float32 (S,).
        served: The centre's as it is served, float32 (S,), widened exactly.
    """

    meant: Float32s
    served: Float32s


def cosine(before: Look, after: Look) -> float:
    """Cosine between the change that was meant and the change that was served, -1 to 1.

    0 where only one of the two is zero: of what was meant nothing arrived. 1 where both are. Weights with a
    change that is no finite number are left out. The same looks give the same bits on any machine: float64,
    summed pairwise by numpy, and no BLAS, whose order of summation depends on its threads.
    """
    meant, served = _change(before.meant, after.meant), _change(before.served, after.served)
    finite = np.isfinite(meant) & np.isfinite(served)
    meant, served = meant[finite], served[finite]
    sizes = float(np.sum(meant * meant)), float(np.sum(served * served))
    if 0.0 in sizes:
        return float(sizes[0] == sizes[1])
    # One root of the product: equal changes give exactly 1.
    return max(-1.0, min(1.0, float(np.sum(meant * served)) / math.sqrt(sizes[0] * sizes[1])))


def drift(served: Float32s, expected: Float32s) -> dict[str, float]:
    """How far served weights are from what they should be; both float32 (S,).

    Returns:
        `drift`, the rms of the difference over those where it is a finite number, in units of the weights;
        `drifted`, the share of weights whose values differ, 0 to 1.
    """
    difference = _change(expected, served)
    finite = difference[np.isfinite(difference)]
    square = float(np.mean(finite * finite)) if finite.size else 0.0
    return {"drift": math.sqrt(square), "drifted": int(np.count_nonzero(served != expected)) / max(1, served.size)}


class Reach:
    """Looks at the sample before and after each update, and keeps how it was at the base."""

    def __init__(
        self, master: Master, dtype: Callable[[TensorSpec], DType], read: Read | None, *, derived: bool = True
    ) -> None:
        """Takes the base, which must be what the master holds and the engine serves.

        Args:
            master: What is meant.
            dtype: The format that a tensor is served in.
            read: Reads back what generates; None where it cannot be read, and then no drift is told.
            derived: Whether the centre is served from the master, so that it need not be served to be known;
                otherwise it is read, and must be what is served whenever an update begins and ends.
        """
        if read is None and not derived:
            raise ValueError("weights that are not derived from the master must be read back to be known")
        self._master, self._read, self._derived = master, read, derived
        self._drift: dict[str, float] = {}
        self._dtypes: list[tuple[DType, int]] = [(dtype(spec), len(positions)) for spec, positions in master.sample]
        self._cosines: dict[str, float] = {}
        self.check(None, 0.0)
        self._base = self._look()

    def told(self) -> dict[str, float]:
        """Nothing before the first update, then finite numbers.

        `cosine` of the last update and `cosine_run` of all since the base, also through an anchor; `drift` and
        `drifted` of the last `check`, where what generates can be read.
        """
        return {**self._cosines, **self._drift} if self._cosines else {}

    @contextmanager
    def update(self) -> Generator[None]:
        """Around one update; one that raises is not told of."""
        before = self._look()
        yield
        after = self._look()
        self._cosines = {"cosine": cosine(before, after), "cosine_run": cosine(self._base, after)}

    def check(self, seed: int | None, sigma: float) -> None:
        """Reads back what generates and compares it with what this member, or the centre for None, should be."""
        if self._read is not None:
            self._drift = drift(self._generating(), self._cast(self._master.sampled(seed, sigma)))

    def _look(self) -> Look:
        meant = self._master.sampled()
        return Look(meant, self._cast(meant) if self._derived else self._generating())

    def _generating(self) -> Float32s:
        assert self._read is not None
        return gather(self._master.sample, self._read)

    def _cast(self, values: Float32s) -> Float32s:
        """The values (S,) as they are served; in few pieces, since tensors of one format stand together."""
        pieces: list[Float32s] = []
        at = 0
        for dtype, tensors in groupby(self._dtypes, key=itemgetter(0)):
            end = at + sum(size for _, size in tensors)
            pieces.append(noise.widen(noise.cast(values[at:end], dtype), dtype))
            at = end
        return np.concatenate([np.empty(0, np.float32), *pieces])


def _change(before: Float32s, after: Float32s) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        return after.astype(np.float64) - before
