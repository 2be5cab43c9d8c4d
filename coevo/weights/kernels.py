"""The noise contract on the CPU: numba, parallel, one pass over memory, the same bits as `noise`.

Usage, for a member's weights and then an update of the centre:

    kernels.serve(master, out, seed=seed, name=name, step=step32(sigma, scale))
    kernels.update(master, name=name, terms=[(seed, step32(coefficient, scale)), ...])

A few Philox calls at a time fill a small buffer, which LLVM vectorises; read as 16-bit numbers that buffer is
the list of table indices, in element order. The table (256 KB) lives in the L2 cache and its look-up sets the
pace. No fast-math: LLVM then never fuses a multiply and an add.

The number of threads is `numba.set_num_threads`. Imports without torch. The first call of each kernel on a
machine compiles it (seconds); where no cache folder can be written, the first call in each process does.
"""

import sys
from collections.abc import Sequence
from functools import cache
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from coevo.weights import _compiled, noise
from coevo.weights.dtypes import DType, Float32s, Stored, dtype_of, held_as

if sys.byteorder != "little":
    raise ImportError("coevo's kernels read 32-bit words as pairs of 16-bit numbers: little-endian machines only")

# numba's workqueue layer, the fallback where there is no OpenMP, ends the process when two threads enter it.
_one_caller = Lock()

_CODES: dict[DType, int] = {
    "float32": _compiled.FLOAT32,
    "bfloat16": _compiled.BFLOAT16,
    "float16": _compiled.FLOAT16,
}
_SERVE = {"float32": _compiled.serve_float32, "bfloat16": _compiled.serve_bfloat16, "float16": _compiled.serve_float16}


def _halves(value: int) -> NDArray[np.uint32]:
    return np.array(noise.split64(value), dtype=np.uint32)


def _place(start: int) -> tuple[np.uint64, int]:
    """The Philox block that element `start` is in, and how many elements of it come before."""
    if start < 0:
        raise ValueError(f"start is {start}, expected a flat index of 0 or more")
    return np.uint64(start // noise.PER_BLOCK), start % noise.PER_BLOCK


def _flat(array: NDArray[Any], what: str) -> NDArray[Any]:
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} of shape {array.shape} and strides {array.strides} is not C-contiguous")
    return array.reshape(-1)


def _pair(master: Float32s, out: Stored) -> tuple[NDArray[Any], NDArray[Any], DType]:
    """Both arrays flat, `out` of a 16-bit format as its bits, and the format of `out`."""
    if master.dtype != np.float32:
        raise TypeError(f"the master is {master.dtype}, expected float32")
    if master.size != out.size:
        raise ValueError(f"out holds {out.size} elements, shape {out.shape}; master {master.size}, {master.shape}")
    dtype = dtype_of(out)
    flat = _flat(out, "out")
    return _flat(master, "master"), flat if dtype == "float32" else flat.view(np.uint16), dtype


def serve(master: Float32s, out: Stored, *, seed: int, name: str, step: np.float32, start: int = 0) -> None:
    """Writes cast(R(master + R(step·n))) into `out`; a step of zero copies without arithmetic.

    Args:
        master: fp32, any shape, C-contiguous; elements `start` onward of the tensor `name`.
        out: As many elements, C-contiguous: float32, uint16 (bfloat16 patterns) or float16 decides the cast.
        seed: The member's 64-bit seed.
        name: The tensor's checkpoint name.
        step: `noise.step32(sigma, scale)`.
        start: Flat index of the first element, for a shard of a tensor.

    Raises:
        TypeError: If a dtype is none of those.
        ValueError: If the sizes differ, an array is not contiguous, or `start` or `seed` is out of range.
    """
    if step == 0:
        copy(master, out)
        return
    source, target, dtype = _pair(master, out)
    first, skip = _place(start)
    h, k = _halves(noise.tensor_key(name)), _halves(seed)
    with _one_caller:
        _SERVE[dtype](source, target, noise.table(), first, skip, h, k, np.float32(step))


def copy(master: Float32s, out: Stored) -> None:
    """Casts `master` into `out` without arithmetic: the centre. Arguments and errors as in `serve`."""
    source, target, dtype = _pair(master, out)
    if dtype == "float32":
        target[...] = source
        return
    with _one_caller:
        _compiled.cast_bits(source.view(np.uint32), target, _CODES[dtype])


def update(master: Float32s, *, name: str, terms: Sequence[tuple[int, np.float32]], start: int = 0) -> int:
    """Adds Σ R(step·n) to `master` in place, all terms in one pass over memory.

    Args:
        master: fp32, any shape, C-contiguous; elements `start` onward of the tensor `name`.
        name: The tensor's checkpoint name.
        terms: (seed, step32(coefficient, scale)), one a seed (`noise.merge_terms`), in journal order; zero
            steps are skipped, and with none left the master is not touched.
        start: Flat index of the first element.

    Returns:
        How many elements are NaN afterwards: more than none means that the step was far too long.

    Raises:
        TypeError: If `master` is not float32.
        ValueError: If `master` is not contiguous, or `start` or a seed is out of range.
    """
    terms = [(seed, step) for seed, step in terms if step != 0]
    if not terms:
        return 0
    target, _, _ = _pair(master, master)
    first, skip = _place(start)
    keys = np.array([noise.split64(seed) for seed, _ in terms], dtype=np.uint32)  # (T, 2)
    steps = np.array([step for _, step in terms], dtype=np.float32)  # (T,)
    with _one_caller:
        return int(_compiled.update(target, noise.table(), first, skip, _halves(noise.tensor_key(name)), keys, steps))


def add(
    weights: Stored, *, name: str, terms: Sequence[tuple[int, np.float32]], together: bool = False, start: int = 0
) -> None:
    """Adds noise to served weights in place, in their own format: inexact, only for comparison.

    Term by term, w = cast(R(w + d)) with d = cast(R(step·n)). With `together` one such step for all of them:
    d = cast(acc) with acc = R(acc + R(step·n)) from 0, as `update` sums. float32 weights are rounded to fp32
    where others are cast.

    Args:
        weights: Any shape, C-contiguous: float32, uint16 (bfloat16 patterns) or float16; elements `start`
            onward of the tensor `name`.
        name: The tensor's checkpoint name.
        terms: (seed, `noise.step32(number, scale)`) in the order that they are added; zero steps are skipped.
        together: Whether they are summed first.
        start: Flat index of the first element.

    Raises:
        TypeError: If `weights` are of another dtype.
        ValueError: If `weights` are not contiguous, or `start` or a seed is out of range.
    """
    terms = [(seed, step) for seed, step in terms if step != 0]
    dtype = dtype_of(weights)
    if dtype == "float32":
        for group in [terms] if together else [[term] for term in terms]:
            update(cast("Float32s", weights), name=name, terms=group, start=start)
        return
    target = _flat(weights, "weights").view(np.uint16)
    first, skip = _place(start)
    keys = np.array([noise.split64(seed) for seed, _ in terms], dtype=np.uint32).reshape(-1, 2)  # (T, 2)
    steps = np.array([step for _, step in terms], dtype=np.float32)  # (T,)
    h, values = _halves(noise.tensor_key(name)), _values(dtype)
    with _one_caller:
        _compiled.add_bits(target, values, noise.table(), first, skip, h, keys, steps, together, _CODES[dtype])


@cache
def _values(dtype: DType) -> Float32s:
    """The numbers that all bit patterns of a 16-bit format mean, float32 (65536,)."""
    patterns: Stored = np.arange(1 << 16, dtype=np.uint16).view(held_as(dtype))
    return noise.widen(patterns, dtype)


def perturb_at(master: Float32s, positions: NDArray[np.int64], *, seed: int, name: str, step: np.float32) -> Float32s:
    """R(master + R(step·n)) at flat `positions` (n,), float32 (n,): what `serve` casts; `master` is the whole tensor.

    A step of zero copies without arithmetic.
    """
    source, _, _ = _pair(master, master)
    if step == 0:
        return source[positions]
    out = np.empty(positions.shape, dtype=np.float32)
    h, k = _halves(noise.tensor_key(name)), _halves(seed)
    _compiled.perturb_at(source, positions, out, noise.table(), h, k, np.float32(step))
    return out
