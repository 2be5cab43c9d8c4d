"""The compiled code behind `kernels`: the narrow, untyped boundary to numba.

All of it is in this one file because numba's cache on disk notices a change of the function's own file only.
`h` and `k` are the low and high 32-bit halves of a tensor's key and of a seed, shape (2,); `first` is the
Philox block that the first element is in and `skip` how many elements of that block come before it.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import prange

_Function = TypeVar("_Function", bound=Callable[..., Any])

BLOCK = 8192
"""Elements that a thread works on at a time: sums and weights of a block stay in its L2 cache."""

PART = 16
"""Philox calls made at a time; long enough to fill vectors, short enough to overlap with table look-ups."""

FLOAT32, BFLOAT16, FLOAT16 = 0, 1, 2

_U32, _U64 = np.uint32, np.uint64
_32 = _U64(32)
_M0, _M1 = _U64(0xD2511F53), _U64(0xCD9E8D57)
_W0, _W1 = _U32(0x9E3779B9), _U32(0xBB67AE85)


def _jit(*, parallel: bool = False, inline: str = "never") -> Callable[[_Function], _Function]:
    """`numba.njit` with types kept, cached on disk where a place for the cache can be written."""

    def compile_lazily(function: _Function) -> _Function:
        njit = cast(Callable[..., Callable[[_Function], _Function]], numba.njit)
        try:
            return njit(cache=True, parallel=parallel, inline=inline)(function)
        except RuntimeError:  # read-only installation and no home: compile once a process
            return njit(cache=False, parallel=parallel, inline=inline)(function)

    return compile_lazily


@_jit(inline="always")  # LLVM would not inline ten unrolled rounds, and then not vectorise the loop around them
def _philox(block: Any, h0: Any, h1: Any, k0: Any, k1: Any) -> Any:
    """The four words of counter (lo block, hi block, h0, h1) under key (k0, k1)."""
    c0, c1, c2, c3 = _U32(block), _U32(block >> _32), h0, h1
    for _ in range(10):
        p0 = _M0 * _U64(c0)
        p1 = _M1 * _U64(c2)
        c0, c1, c2, c3 = _U32(p1 >> _32) ^ c1 ^ k0, _U32(p1), _U32(p0 >> _32) ^ c3 ^ k1, _U32(p0)
        k0, k1 = _U32(k0 + _W0), _U32(k1 + _W1)
    return c0, c1, c2, c3


@_jit()
def _fill(words: Any, count: Any, first: Any, h0: Any, h1: Any, k0: Any, k1: Any) -> None:
    """Writes the words of blocks `first` onward; `words` (>= 4 * count,)."""
    for j in range(count):
        w0, w1, w2, w3 = _philox(first + _U64(j), h0, h1, k0, k1)
        words[4 * j] = w0
        words[4 * j + 1] = w1
        words[4 * j + 2] = w2
        words[4 * j + 3] = w3


@_jit()
def _as_bfloat16(bits: Any) -> Any:
    """Nearest even, on the bits of an fp32 number."""
    rounded = _U32(bits + _U32(0x7FFF) + ((bits >> _U32(16)) & _U32(1))) >> _U32(16)
    return np.uint16(rounded) if bits & _U32(0x7FFFFFFF) <= _U32(0x7F800000) else np.uint16(0x7FC0)


@_jit()
def _as_float16(bits: Any) -> Any:
    """Nearest even, on the bits of an fp32 number, subnormal results and overflow included.

    All three cases are computed and one is chosen, and every step is cut back to 32 bits (numba widens), so
    that LLVM can vectorise.
    """
    size = _U32(bits & _U32(0x7FFFFFFF))
    normal = _U32(_U32(size - _U32(0x38000000)) + _U32(0xFFF) + _U32(_U32(size >> _U32(13)) & _U32(1)))
    # Below 2^-14, in units of 2^-24, the smallest subnormal; from a shift of 25 on all rounds to zero.
    exponent = _U32(size >> _U32(23))
    shift = _U32(_U32(126) - (exponent if exponent < _U32(112) else _U32(112)))
    shift = shift if shift < _U32(31) else _U32(31)
    mantissa = _U32(_U32(size & _U32(0x7FFFFF)) | _U32(0x800000))
    below_half = _U32(_U32(_U32(1) << _U32(shift - _U32(1))) - _U32(1))
    small = _U32(_U32(mantissa + below_half) + _U32(_U32(mantissa >> shift) & _U32(1)))
    chosen = _U32(normal >> _U32(13)) if size >= _U32(0x38800000) else _U32(small >> shift)
    # From 65536 on; what lies between 65520 and that becomes infinity by its carry.
    chosen = _U32(0x7C00) if size >= _U32(0x47800000) else chosen
    signed = _U32(chosen | _U32(_U32(bits >> _U32(16)) & _U32(0x8000)))
    return np.uint16(signed if size <= _U32(0x7F800000) else _U32(0x7E00))


@_jit()
def _perturb(
    master: Any, out: Any, table: Any, first: Any, skip: Any, h0: Any, h1: Any, k0: Any, k1: Any, step: Any
) -> None:
    """Writes R(master + R(step·n)); in short parts, so that words are made while table entries are waited for."""
    words = np.empty(4 * PART, np.uint32)
    indices = words.view(np.uint16)
    for at in range(-skip, master.shape[0], 8 * PART):
        _fill(words, PART, first + _U64((at + skip) // 8), h0, h1, k0, k1)
        begin, end = max(at, 0), min(at + 8 * PART, master.shape[0])
        here, source, target = indices[begin - at :], master[begin:end], out[begin:end]
        for i in range(end - begin):
            target[i] = source[i] + step * table[here[i]]


@_jit(parallel=True)
def serve_float32(master: Any, out: Any, table: Any, first: Any, skip: Any, h: Any, k: Any, step: Any) -> None:
    size = master.shape[0]
    for block in prange((size + BLOCK - 1) // BLOCK):
        begin, end = block * BLOCK, min(block * BLOCK + BLOCK, size)
        at = first + _U64(block * (BLOCK // 8))
        _perturb(master[begin:end], out[begin:end], table, at, skip, h[0], h[1], k[0], k[1], step)


@_jit(parallel=True)
def serve_bfloat16(master: Any, out: Any, table: Any, first: Any, skip: Any, h: Any, k: Any, step: Any) -> None:
    size = master.shape[0]
    for block in prange((size + BLOCK - 1) // BLOCK):
        begin, end = block * BLOCK, min(block * BLOCK + BLOCK, size)
        sums = np.empty(BLOCK, np.float32)
        at = first + _U64(block * (BLOCK // 8))
        _perturb(master[begin:end], sums, table, at, skip, h[0], h[1], k[0], k[1], step)
        bits, target = sums.view(np.uint32), out[begin:end]
        for i in range(end - begin):
            target[i] = _as_bfloat16(bits[i])


@_jit(parallel=True)
def serve_float16(master: Any, out: Any, table: Any, first: Any, skip: Any, h: Any, k: Any, step: Any) -> None:
    size = master.shape[0]
    for block in prange((size + BLOCK - 1) // BLOCK):
        begin, end = block * BLOCK, min(block * BLOCK + BLOCK, size)
        sums = np.empty(BLOCK, np.float32)
        at = first + _U64(block * (BLOCK // 8))
        _perturb(master[begin:end], sums, table, at, skip, h[0], h[1], k[0], k[1], step)
        bits, target = sums.view(np.uint32), out[begin:end]
        for i in range(end - begin):
            target[i] = _as_float16(bits[i])


@_jit(parallel=True)
def cast_bits(bits: Any, out: Any, code: Any) -> None:
    for i in prange(bits.shape[0]):
        out[i] = _as_bfloat16(bits[i]) if code == BFLOAT16 else _as_float16(bits[i])


@_jit(parallel=True)
def update(master: Any, table: Any, first: Any, skip: Any, h: Any, keys: Any, steps: Any) -> Any:
    """Adds all terms in one pass; keys (T, 2), steps (T,). Returns how many results are NaN."""
    size = master.shape[0]
    not_numbers = 0
    for block in prange((size + BLOCK - 1) // BLOCK):
        begin, end = block * BLOCK, min(block * BLOCK + BLOCK, size)
        sums = np.zeros(BLOCK, np.float32)
        at = first + _U64(block * (BLOCK // 8))
        for t in range(steps.shape[0]):
            here = sums[: end - begin]
            _perturb(here, here, table, at, skip, h[0], h[1], keys[t, 0], keys[t, 1], steps[t])
        target = master[begin:end]
        bad = 0
        for i in range(end - begin):
            target[i] = target[i] + sums[i]
            bad += target[i] != target[i]
        not_numbers += bad
    return not_numbers


@_jit(parallel=True)
def add_bits(
    bits: Any, values: Any, table: Any, first: Any, skip: Any, h: Any, keys: Any, steps: Any, together: Any, code: Any
) -> None:
    """Adds terms to 16-bit weights in place; `values` (65536,) are the numbers that the patterns mean.

    With `together` the terms are summed in fp32 and the sum is rounded and added once, else each term is.
    """
    size, count = bits.shape[0], steps.shape[0]
    for block in prange((size + BLOCK - 1) // BLOCK):
        begin, end = block * BLOCK, min(block * BLOCK + BLOCK, size)
        target, sums = bits[begin:end], np.zeros(end - begin, np.float32)
        sum_bits = sums.view(np.uint32)
        at = first + _U64(block * (BLOCK // 8))
        for t in range(count):
            _perturb(sums, sums, table, at, skip, h[0], h[1], keys[t, 0], keys[t, 1], steps[t])
            if together and t < count - 1:
                continue
            for i in range(end - begin):
                rounded = _as_bfloat16(sum_bits[i]) if code == BFLOAT16 else _as_float16(sum_bits[i])
                sums[i] = values[target[i]] + values[rounded]
                target[i] = _as_bfloat16(sum_bits[i]) if code == BFLOAT16 else _as_float16(sum_bits[i])
                sums[i] = 0.0


@_jit()
def perturb_at(master: Any, positions: Any, out: Any, table: Any, h: Any, k: Any, step: Any) -> None:
    """Writes R(master + R(step·n)) of single elements; `out` and `positions` (n,)."""
    words = np.empty(4, np.uint32)
    indices = words.view(np.uint16)
    for i in range(positions.shape[0]):
        at = positions[i]
        _fill(words, 1, _U64(at >> 3), h[0], h[1], k[0], k[1])
        out[i] = master[at] + step * table[indices[at & 7]]
