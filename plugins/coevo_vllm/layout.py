"""Where each element of a checkpoint lies in what vLLM holds: found out by loading numbers that say where they are.

vLLM fuses, shards, pads and permutes. Instead of knowing how, tensors are loaded through its own loaders whose values
are the digits, base 256, of each element's place; read back, the digits say what lies where. Numbers up to 255 are
exact in every format that is served. Two more digits are a check sum, by which padding and leftovers are told from
places. What cannot be read back (packed weights) simply appears nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Positions: TypeAlias = NDArray[np.int64]

CHECKS = 2


def places(offset: int, size: int) -> Positions:
    """The places of a tensor's elements, int64 (size,): one after the other in the selection."""
    return np.arange(offset, offset + size, dtype=np.int64)


def digits_needed(total: int) -> int:
    """How many digits tell `total` places apart, with the check sum's."""
    return max(1, (max(total - 1, 1).bit_length() + 7) // 8) + CHECKS


def digit(at: Positions, which: int, count: int) -> NDArray[np.uint8]:
    """Digit `which` of `count` of each place, uint8 (n,); the last two are the check sum's."""
    if which < count - CHECKS:
        return ((at >> (8 * which)) & 0xFF).astype(np.uint8)
    mixed = at.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x5AA55A17C0DE0000)
    return ((mixed >> np.uint64(40 + 8 * (which - count + CHECKS))) & np.uint64(0xFF)).astype(np.uint8)


def decode(found: Sequence[NDArray[np.uint8]], total: int) -> Positions:
    """The place of each element from the digits read in each round, int64 (n,); -1 where the check sum denies it.

    Args:
        found: For each digit what was read, uint8 (n,).
        total: How many places there are.
    """
    count = len(found)
    at = np.zeros(len(found[0]), dtype=np.int64)
    for which in range(count - CHECKS):
        at |= found[which].astype(np.int64) << (8 * which)
    good = at < total
    for which in range(count - CHECKS, count):
        good &= digit(at, which, count) == found[which]
    return np.where(good, at, -1)


@dataclass(frozen=True, slots=True)
class Runs:
    """Elements of one tensor that lie one after the other in one parameter.

    Attributes:
        parameter: Its name in the worker's model.
        inside: Where each run begins in the parameter, flat, int64 (r,).
        start: Where it begins in the tensor, flat, int64 (r,).
        length: How long it is, int64 (r,).
    """

    parameter: str
    inside: Positions
    start: Positions
    length: Positions

    def gathered(self, flat: NDArray[np.generic]) -> NDArray[np.generic]:
        """The elements of all runs out of the flat parameter, one run after the other."""
        if len(self.inside) == 1:
            return flat[self.inside[0] : self.inside[0] + self.length[0]]
        return flat[spread(self.inside, self.length)]


def spread(start: Positions, length: Positions) -> Positions:
    """start_0, start_0 + 1, … start_0 + length_0 - 1, start_1, …: int64 (sum of lengths,)."""
    before = np.concatenate([[0], np.cumsum(length)[:-1]])
    return np.repeat(start - before, length) + np.arange(int(length.sum()), dtype=np.int64)


def runs_of(parameter: str, at: Positions, offsets: dict[str, tuple[int, int]]) -> dict[str, Runs]:
    """What of each tensor lies in a parameter.

    Args:
        parameter: The parameter's name.
        at: The place of each of its elements, -1 for none, int64 (n,).
        offsets: Name → (offset, size) of the tensors that it may hold parts of.
    """
    found: dict[str, Runs] = {}
    for name, (offset, size) in offsets.items():
        inside = np.flatnonzero((at >= offset) & (at < offset + size))
        if not len(inside):
            continue
        start = at[inside] - offset
        breaks = np.flatnonzero((np.diff(inside) != 1) | (np.diff(start) != 1)) + 1
        begin = np.concatenate([[0], breaks])
        length = np.diff(np.concatenate([begin, [len(inside)]]))
        found[name] = Runs(parameter, inside[begin], start[begin], length)
    return found
