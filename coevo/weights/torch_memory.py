"""A torch tensor's memory as the kernels take it. Imports torch: for engines that have it anyway."""

from typing import Any, cast

import numpy as np
import torch

from coevo.weights.dtypes import Stored

_AS_NUMPY = {torch.bfloat16: (torch.int16, np.uint16), torch.float16: (torch.float16, np.float16)}


def as_numpy(tensor: torch.Tensor) -> Stored:
    """The memory of a CPU tensor as numpy sees it, same shape; bfloat16 as uint16 patterns."""
    through, held = _AS_NUMPY.get(tensor.dtype, (tensor.dtype, np.float32))
    return cast(Stored, tensor.detach().view(through).numpy().view(cast(Any, held)))
