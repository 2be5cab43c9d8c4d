"""The noise contract in Triton, for a CUDA device: one pass over memory, the same bits as `noise`.

Compiled with `enable_fp_fusion=False`, so that no multiply and add become one. `compile_ptx` shows the code
for an H100 without having one. triton and torch are imported inside the functions.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from coevo.errors import MissingExtraError
from coevo.weights import noise as definition
from coevo.weights import torch_noise

if TYPE_CHECKING:
    import numpy as np
    import torch

BLOCKS = 128
"""Philox calls a program makes; a thread of four warps then makes one, for eight elements."""

_OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}
_SIGNED32 = 1 << 31


def _kernels() -> ModuleType:
    try:
        from coevo.weights import _triton_kernels
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise MissingExtraError("noise on a CUDA device", "triton", "transformers") from None
    return _triton_kernels


def _signed_halves(value: int) -> list[int]:
    """The (low, high) halves as signed numbers: Triton gives every int32 one type, whatever its value."""
    return [half - 2 * _SIGNED32 if half >= _SIGNED32 else half for half in definition.split64(value)]


def _grid(size: int, start: int) -> tuple[int, int, tuple[int]]:
    """First Philox block, elements of it to skip, and the launch grid."""
    if start < 0:
        raise ValueError(f"start is {start}, expected a flat index of 0 or more")
    first, skip = start // definition.PER_BLOCK, start % definition.PER_BLOCK
    blocks = -(-(skip + size) // definition.PER_BLOCK)
    return first, skip, (-(-blocks // BLOCKS),)


def serve(
    master: "torch.Tensor", out: "torch.Tensor", *, seed: int, name: str, step: "np.float32", start: int = 0
) -> None:
    """Writes cast(R(master + R(step·n))) into `out`; arguments as in `torch_noise.serve`, on one CUDA device.

    Raises:
        MissingExtraError: If triton or torch is not installed.
        TypeError: If the master is not float32, or `out` none of float32, bfloat16 and float16.
        ValueError: If the sizes differ, a tensor is not contiguous, or `start` or `seed` is out of range.
    """
    kernels = _kernels()
    table = torch_noise.device_table(str(master.device))
    import torch

    source, target = torch_noise.flat_pair(master, out)
    if step == 0 or source.numel() == 0:
        torch_noise.serve(master, out, seed=seed, name=name, step=step, start=start)
        return
    code = (torch.float32, torch.bfloat16, torch.float16).index(out.dtype)
    first, skip, grid = _grid(source.numel(), start)
    halves = [*_signed_halves(definition.tensor_key(name)), *_signed_halves(seed)]
    bits = target if code == 0 else target.view(torch.int16)
    kernels.serve[grid](
        source, bits, table, source.numel(), first, skip, *halves, float(step), DTYPE=code, BLOCKS=BLOCKS, **_OPTIONS
    )


def update(master: "torch.Tensor", *, name: str, terms: "Sequence[tuple[int, np.float32]]", start: int = 0) -> int:
    """Adds Σ R(step·n) to `master` in place; arguments as in `torch_noise.update`, on a CUDA device.

    Returns:
        How many elements are NaN afterwards.

    Raises:
        MissingExtraError: If triton or torch is not installed.
        TypeError: If `master` is not float32.
        ValueError: If `master` is not contiguous, or `start` or a seed is out of range.
    """
    kernels = _kernels()
    table = torch_noise.device_table(str(master.device))
    import torch

    terms = [(seed, step) for seed, step in terms if step != 0]
    target, _ = torch_noise.flat_pair(master, master)
    if not terms or target.numel() == 0:
        return 0
    first, skip, grid = _grid(target.numel(), start)
    keys = torch.tensor([_signed_halves(seed) for seed, _ in terms], dtype=torch.int32, device=master.device)
    steps = torch.tensor([float(step) for _, step in terms], dtype=torch.float32, device=master.device)
    halves = _signed_halves(definition.tensor_key(name))
    kernels.update[grid](
        target, table, keys, steps, len(terms), target.numel(), first, skip, *halves, BLOCKS=BLOCKS, **_OPTIONS
    )
    return int(target.isnan().sum())


def compile_ptx(capability: int = 90) -> str:
    """PTX of every kernel and cast, compiled for a CUDA capability (90 is H100) without a GPU.

    Raises:
        MissingExtraError: If triton is not installed.
    """
    kernels: Any = _kernels()
    whole: dict[str, str] = dict.fromkeys(["size", "first"], "i64")
    whole |= dict.fromkeys(["skip", "h0", "h1", "k0", "k1", "terms"], "i32")
    pointers = {"master": "*fp32", "table": "*fp32", "steps": "*fp32", "keys": "*i32"}
    parts: list[str] = []
    for kernel, code in [(kernels.serve, 0), (kernels.serve, 1), (kernels.serve, 2), (kernels.update, None)]:
        types = {**whole, **pointers, "step": "fp32", "out": "*i16" if code else "*fp32"}
        constants = {"BLOCKS": BLOCKS} | ({} if code is None else {"DTYPE": code})
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        parts.append(kernels.compile_for_cuda(kernel, signature, constants, capability, _OPTIONS))
    return "\n".join(parts)
