"""Weights that are no numbers, or none in the format that they are served in: found before anything is made of them."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np

from coevo.errors import UserError
from coevo.weights import noise
from coevo.weights.dtypes import DType, Stored
from coevo.weights.selection import Selection, TensorSpec
from coevo.weights.stored import StoredTensor

_CHUNK = 1 << 22


def require_finite(selection: Selection, stored: Mapping[str, StoredTensor], dtype: DType | None = None) -> None:
    """Refuse a checkpoint whose selected tensors are not finite, as they are stored or as they are served.

    Args:
        selection: The tensors to look at.
        stored: The checkpoint.
        dtype: What they are served in; None for what each is stored in.

    Raises:
        UserError: which tensor of which file, and what is in it.
    """

    def look(spec: TensorSpec) -> str:
        if not spec.size:
            return ""
        entry = stored[spec.name]
        largest = noise.widen(_largest(entry.read().reshape(-1)), spec.dtype)
        where = f"{spec.name!r} in {str(entry.file)!r} holds"
        if not np.isfinite(largest).all():
            what = "NaN" if np.isnan(largest).any() else "an infinity"
            return f"{where} {what}; expected a checkpoint of finite numbers: fetch the model again"
        if not np.isfinite(noise.widen(noise.cast(largest, dtype or spec.dtype), dtype or spec.dtype)).all():
            return f"{where} {largest[0]:.3g}, more than {dtype} goes to; choose another dtype for the engine"
        return ""

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        if wrong := next(filter(None, pool.map(look, selection.tensors)), ""):
            raise UserError(wrong)


def _largest(flat: Stored) -> Stored:
    """The largest magnitude in stored weights (n,), as they are stored (1,): NaN before infinity before numbers.

    Without their signs, bit patterns of floating-point numbers are in this order.
    """
    bits = flat.view(f"u{flat.itemsize}")
    unsigned = bits.dtype.type((1 << (8 * flat.itemsize - 1)) - 1)
    most = max(int((bits[at : at + _CHUNK] & unsigned).max()) for at in range(0, len(bits), _CHUNK))
    return cast(Stored, np.array([most], dtype=bits.dtype).view(flat.dtype))
