"""The three number formats that weights come in, and how numpy holds each of them."""

from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

DType: TypeAlias = Literal["float32", "bfloat16", "float16"]
"""A format that weights are stored or served in."""

Float32s: TypeAlias = NDArray[np.float32]
Stored: TypeAlias = NDArray[np.float32] | NDArray[np.uint16] | NDArray[np.float16]
"""Weights as stored: float32, the bit patterns of bfloat16 as uint16 (numpy has no bfloat16), or float16."""

DTYPES: tuple[DType, ...] = get_args(DType)

FROM_SAFETENSORS: dict[str, DType] = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
TO_SAFETENSORS: dict[DType, str] = {dtype: code for code, dtype in FROM_SAFETENSORS.items()}

_HELD_AS: dict[DType, np.dtype[Any]] = {
    "float32": np.dtype("<f4"),
    "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"),
}


def held_as(dtype: DType) -> np.dtype[Any]:
    """The numpy dtype that holds `dtype`: float32, uint16 for bfloat16, float16."""
    return _HELD_AS[dtype]


def dtype_of(array: NDArray[Any]) -> DType:
    """The format that `array` (any shape) holds.

    Raises:
        TypeError: If it is none of float32, uint16 (bfloat16) and float16.
    """
    for dtype, held in _HELD_AS.items():
        if array.dtype == held:
            return dtype
    raise TypeError(f"weights are float32, uint16 (bfloat16) or float16 arrays, not {array.dtype}")
