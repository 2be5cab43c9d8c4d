"""The noise contract `normal-v1`: numpy code that defines what every other implementation must equal.

Element i of the tensor called `name` under a 64-bit seed is a pure function of (seed, name, i), so noise can
be made in any order, in any piece and on any device. Philox4x32-10 (Salmon et al. 2011, "Parallel random
numbers: as easy as 1, 2, 3", doi 10.1145/2063384.2063405) with key (lo, hi of the seed) and counter
(lo b, hi b, lo h, hi h), where b = i // 8 and h = `tensor_key(name)`, gives four 32-bit words for eight
elements: element e = i mod 8 reads word e // 2, low half when e is even. That 16-bit index looks up a table
of normal quantiles. Integers and a table instead of a logarithm and a cosine, because libm differs from
machine to machine and integers do not.

All arithmetic is fp32 with one rounding an operation and no fused multiply-add. NaN is outside the contract
of the fp32 results (its bits differ between processors); casts to 16 bits turn every NaN into the one quiet
NaN of the format. Written for clarity: `kernels` is the fast one.
"""

import hashlib
import math
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from coevo.errors import CheckFailedError
from coevo.weights.dtypes import DType, Float32s, Stored

FAMILY = "normal-v1"
TABLE_SIZE = 1 << 16
TABLE_SHA256 = "8babbcaf96568f10165a1eab530c0e5c92d04de96761b6dbb3dadfa94baba37f"
PER_BLOCK = 8
"""Elements that one Philox call serves."""

_MASK32 = 0xFFFFFFFF
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def build_table() -> Float32s:
    """Computes the table again, shape (65536,): the shipped file is the contract, this shows its origin.

    Standard normal quantiles at (k + 0.5) / 65536, divided by their standard deviation in float64 and
    rounded once to fp32. The lower half is the mirrored upper half, hence antisymmetric to the bit.
    """
    quantile = NormalDist().inv_cdf
    half = TABLE_SIZE // 2
    upper = [quantile((half + k + 0.5) / TABLE_SIZE) for k in range(half)]
    deviation = math.sqrt(math.fsum(q * q for q in upper) / half)
    rounded = np.array([q / deviation for q in upper], dtype="<f4")
    return np.concatenate([-rounded[::-1], rounded])


@cache
def table() -> Float32s:
    """The shipped table of normal quantiles, float32 of shape (65536,), read-only.

    Raises:
        CheckFailedError: If the file in this installation is not the one that the contract names.
    """
    data = files("coevo.weights").joinpath(f"{FAMILY}.f32").read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != TABLE_SHA256:
        raise CheckFailedError(
            f"the noise table '{FAMILY}.f32' is damaged: sha256 {found}, expected {TABLE_SHA256}; "
            "mend it with: pip install --force-reinstall coevo"
        )
    return np.frombuffer(data, dtype="<f4")


@cache
def tensor_key(name: str) -> int:
    """The 64-bit number that stands for a tensor in the counter, a function of its checkpoint name only."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def split64(value: int) -> tuple[int, int]:
    """The (low, high) 32-bit halves of an unsigned 64-bit number.

    Raises:
        ValueError: If `value` does not fit 64 bits.
    """
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} is not an unsigned 64-bit number")
    return value & _MASK32, value >> 32


def philox4x32(counter: NDArray[np.uint32], key: tuple[int, int]) -> NDArray[np.uint32]:
    """Philox4x32-10 of many counters under one key.

    Args:
        counter: (4, n), word by word.
        key: Two 32-bit words.

    Returns:
        (4, n) random words.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0 = c0.astype(np.uint64) * _MULTIPLIERS[0]
        p1 = c2.astype(np.uint64) * _MULTIPLIERS[1]
        hi0, hi1 = ((p >> np.uint64(32)).astype(np.uint32) for p in (p0, p1))
        c0, c2 = hi1 ^ c1 ^ np.uint32(k0), hi0 ^ c3 ^ np.uint32(k1)
        c1, c3 = p1.astype(np.uint32), p0.astype(np.uint32)
        k0, k1 = (k0 + _WEYL[0]) & _MASK32, (k1 + _WEYL[1]) & _MASK32
    return np.stack([c0, c1, c2, c3])


def noise(seed: int, name: str, start: int, stop: int) -> Float32s:
    """Elements `start` to `stop` of a tensor's noise, float32 of shape (stop - start,).

    Raises:
        ValueError: If the range is not 0 <= start <= stop, or the seed does not fit 64 bits.
    """
    if not 0 <= start <= stop:
        raise ValueError(f"noise wants 0 <= start <= stop, got start {start}, stop {stop}")
    first, last = start // PER_BLOCK, -(-stop // PER_BLOCK)
    blocks = np.arange(first, last, dtype=np.uint64)
    counter = np.empty((4, last - first), dtype=np.uint32)
    counter[0] = blocks & np.uint64(_MASK32)
    counter[1] = blocks >> np.uint64(32)
    counter[2], counter[3] = split64(tensor_key(name))
    words = philox4x32(counter, split64(seed))  # (4, blocks)
    indices = np.ascontiguousarray(words.T, dtype="<u4").view("<u2").reshape(-1)  # (blocks * 8,)
    return table()[indices[start - first * PER_BLOCK : stop - first * PER_BLOCK]]


def to_bfloat16(values: Float32s) -> NDArray[np.uint16]:
    """Bit patterns of bfloat16, same shape: nearest even, overflow to infinity, every NaN becomes 0x7FC0."""
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    half_up = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    # A NaN may wrap around here; it is replaced below.
    rounded = ((bits + half_up) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded).reshape(np.shape(values))


def from_bfloat16(patterns: NDArray[np.uint16]) -> Float32s:
    """The float32 values, same shape, of bfloat16 bit patterns; exact."""
    return (np.asarray(patterns, dtype="<u4") << np.uint32(16)).view("<f4")


def to_float16(values: Float32s) -> NDArray[np.float16]:
    """float16, same shape: nearest even, overflow to infinity, every NaN becomes 0x7E00."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        rounded = np.asarray(values).astype("<f2")
    return np.where(np.isnan(values), np.float16(np.nan), rounded)


def cast(values: Float32s, dtype: DType) -> Stored:
    """A copy of `values` as `dtype`, same shape, rounded to nearest even."""
    if dtype == "bfloat16":
        return to_bfloat16(values)
    if dtype == "float16":
        return to_float16(values)
    return np.array(values, dtype=np.float32)


def widen(values: Stored, dtype: DType) -> Float32s:
    """The float32 values, same shape, of weights held as `dtype`; exact, and no copy of float32."""
    if dtype == "bfloat16":
        return from_bfloat16(values.astype(np.uint16, copy=False))
    return values.astype(np.float32, copy=False)


def step32(number: float, scale: float) -> np.float32:
    """`number * scale` (a sigma or a coefficient, times a tensor's scale), multiplied in float64, then fp32.

    Raises:
        ValueError: If the product is not finite in fp32.
    """
    with np.errstate(over="ignore", under="ignore"):
        product = np.float32(float(number) * float(scale))
    if not math.isfinite(product):
        raise ValueError(f"{number!r} times the tensor's scale {scale!r} is not a finite float32")
    return product


def merge_terms(terms: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """The (seed, coefficient) terms with one term a seed, in order of first appearance.

    Coefficients of a seed are added in float64 in the order given. A term that comes out as exactly zero is
    dropped: adding it would change no bit, since the sum starts at +0.0 and can never be -0.0.
    """
    merged: dict[int, float] = {}
    for seed, coefficient in terms:
        merged[seed] = merged.get(seed, 0.0) + float(coefficient)
    return tuple((seed, coefficient) for seed, coefficient in merged.items() if coefficient != 0.0)


def served_reference(
    master: Float32s, seed: int, name: str, sigma: float, scale: float, dtype: DType, *, start: int = 0
) -> Stored:
    """What a member serves: cast(R(master + R(s·n))) with s = R(sigma·scale), same shape as `master`.

    Where s is zero (sigma 0, scale 0) the master is cast without arithmetic, so that -0.0 stays -0.0.

    Args:
        master: fp32, any shape, read in C order; elements `start` onward of the tensor `name`.
        seed: The member's 64-bit seed.
        name: The tensor's checkpoint name.
        sigma: Noise scale; negative for the antithetic twin.
        scale: The tensor's own factor.
        dtype: The format served.
        start: Flat index of the first element, for a shard of a tensor.
    """
    step = step32(sigma, scale)
    if step == 0:
        return cast(master, dtype)
    values = noise(seed, name, start, start + master.size).reshape(master.shape)
    with np.errstate(over="ignore", under="ignore"):
        scaled: Float32s = step * values
        return cast(master + scaled, dtype)


def update_reference(
    master: Float32s, terms: Iterable[tuple[int, float]], name: str, scale: float, *, start: int = 0
) -> Float32s:
    """The master after an update, same shape: acc = R(acc + R(c·n)) term by term, then R(master + acc).

    Terms are merged first; one whose c = R(coefficient·scale) is zero is skipped, and with no term left the
    result is a plain copy. Arguments as in `served_reference`.
    """
    steps = [(seed, step32(coefficient, scale)) for seed, coefficient in merge_terms(terms)]
    steps = [(seed, step) for seed, step in steps if step != 0]
    if not steps:
        return np.array(master, dtype=np.float32)
    total: Float32s = np.zeros(master.shape, dtype=np.float32)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for seed, step in steps:
            scaled: Float32s = step * noise(seed, name, start, start + master.size).reshape(master.shape)
            total = total + scaled
        return master + total
