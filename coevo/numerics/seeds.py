"""Every random number of a run is a function of its coordinates (design section 3, Seeds).

A seed is 64 bits of blake2b over an injective text of the coordinates, so different coordinates differ
(up to a collision of chance 2^-64 a pair) and a repeated chunk gets the seeds it had. The run's name is
no coordinate.
"""

from __future__ import annotations

import hashlib
import json


def derive(root: int, stream: str, *coordinates: str | int) -> int:
    """The 64-bit seed of `coordinates` in `stream`, e.g. `derive(7, "noise", 0, 2, 5)`.

    `"1"` and `1` are different coordinates.
    """
    text = json.dumps(["coevo-seed-v1", root, stream, *coordinates], ensure_ascii=False)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def noise_seed(root: int, generation: int, batch: int, member: int) -> int:
    """The noise seed of a member (of a pair: give the pair's index)."""
    return derive(root, "noise", generation, batch, member)


def sampling_seed(
    root: int, generation: int, batch: int, context: int, example: str, sample: int, member: int | None
) -> int:
    """The seed of a rollout's tokens. `member` is None where random numbers are common to the members."""
    own = () if member is None else (member,)
    return derive(root, "sampling", generation, batch, context, example, sample, *own)
