"""The noise contract in torch, on any device, the same bits as `noise`.

The portable way for engines whose master lives on a device. Philox runs in int64, where a product of two
32-bit numbers keeps all its bits (torch has no unsigned multiply on every device), the table is gathered, and
multiply and add are two operations: `add(alpha=)` may fuse them and would round once too little. On CUDA
`triton_noise` does the same in one pass. torch is imported inside the functions.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from coevo.errors import MissingExtraError
from coevo.weights import noise as definition

if TYPE_CHECKING:
    import numpy as np
    import torch

CHUNK = 1 << 20
"""Elements made at a time: bounds the int64 intermediates to some 60 MB."""

_MASK32 = 0xFFFFFFFF


@cache
def device_table(device: str) -> "torch.Tensor":
    """The quantile table on `device`, float32 of shape (65536,); sent once.

    Raises:
        MissingExtraError: If torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtraError("noise in torch", "torch", "transformers") from None
    return torch.tensor(definition.table(), device=device)


def _philox(first: int, last: int, name: str, seed: int, device: str) -> "torch.Tensor":
    """Words of the Philox blocks `first` to `last`, int64 of shape (last - first, 4)."""
    import torch

    blocks = torch.arange(first, last, dtype=torch.int64, device=device)
    h0, h1 = definition.split64(definition.tensor_key(name))
    k0, k1 = definition.split64(seed)
    c0, c1 = blocks & _MASK32, blocks >> 32
    c2, c3 = torch.full_like(blocks, h0), torch.full_like(blocks, h1)
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        # The shift copies the sign into the high bits; the mask removes it again.
        c0, c2 = ((p1 >> 32) & _MASK32) ^ c1 ^ k0, ((p0 >> 32) & _MASK32) ^ c3 ^ k1
        c1, c3 = p1 & _MASK32, p0 & _MASK32
        k0, k1 = (k0 + 0x9E3779B9) & _MASK32, (k1 + 0xBB67AE85) & _MASK32
    return torch.stack([c0, c1, c2, c3], dim=1)


def noise(seed: int, name: str, start: int, stop: int, device: "str | torch.device" = "cpu") -> "torch.Tensor":
    """Elements `start` to `stop` of a tensor's noise, float32 of shape (stop - start,) on `device`.

    Memory is about 100 bytes an element: `serve` and `update` work in chunks.

    Raises:
        MissingExtraError: If torch is not installed.
        ValueError: If the range is not 0 <= start <= stop, or the seed does not fit 64 bits.
    """
    table = device_table(str(device))
    import torch

    if not 0 <= start <= stop:
        raise ValueError(f"noise wants 0 <= start <= stop, got start {start}, stop {stop}")
    first, last = start // definition.PER_BLOCK, -(-stop // definition.PER_BLOCK)
    words = _philox(first, last, name, seed, str(device))
    indices = torch.stack([words & 0xFFFF, words >> 16], dim=2).reshape(-1)  # (blocks * 8,)
    return table[indices[start - first * definition.PER_BLOCK : stop - first * definition.PER_BLOCK]]


def _chunks(size: int, start: int) -> Iterator[tuple[int, int]]:
    """Ranges of [0, size), cut where Philox blocks end."""
    begin = 0
    while begin < size:
        end = min(size, (begin + start) // CHUNK * CHUNK + CHUNK - start)
        yield begin, end
        begin = end


def _flat(tensor: "torch.Tensor", what: str) -> "torch.Tensor":
    if not tensor.is_contiguous():
        raise ValueError(f"{what} of shape {tuple(tensor.shape)} and stride {tensor.stride()} is not contiguous")
    return tensor.detach().view(-1)


def flat_pair(master: "torch.Tensor", out: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
    """Both tensors flat, after checking them; errors as in `serve`."""
    import torch

    if master.dtype != torch.float32:
        raise TypeError(f"the master is {master.dtype}, expected torch.float32")
    if out.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise TypeError(f"out is {out.dtype}, expected torch.float32, torch.bfloat16 or torch.float16")
    if master.numel() != out.numel():
        raise ValueError(
            f"out holds {out.numel()} elements, shape {tuple(out.shape)}; "
            f"master {master.numel()}, {tuple(master.shape)}"
        )
    return _flat(master, "master"), _flat(out, "out")


def _cast_into(out: "torch.Tensor", values: "torch.Tensor") -> None:
    """Rounds to nearest even; NaN becomes the format's one quiet NaN, which torch leaves to the device."""
    import torch

    out.copy_(values)
    if out.dtype != torch.float32:
        quiet = 0x7FC0 if out.dtype == torch.bfloat16 else 0x7E00
        out.view(torch.int16).masked_fill_(values.isnan(), quiet)


def serve(
    master: "torch.Tensor", out: "torch.Tensor", *, seed: int, name: str, step: "np.float32", start: int = 0
) -> None:
    """Writes cast(R(master + R(step·n))) into `out`; a step of zero copies without arithmetic.

    Args:
        master: fp32, any shape, contiguous; elements `start` onward of the tensor `name`.
        out: As many elements on the same device, contiguous: float32, bfloat16 or float16.
        seed: The member's 64-bit seed.
        name: The tensor's checkpoint name.
        step: `noise.step32(sigma, scale)`.
        start: Flat index of the first element, for a shard of a tensor.

    Raises:
        TypeError: If a dtype is none of those.
        ValueError: If the sizes differ, a tensor is not contiguous, or `start` or `seed` is out of range.
    """
    source, target = flat_pair(master, out)
    for begin, end in _chunks(source.numel(), start):
        values = source[begin:end]
        if step != 0:
            values = noise(seed, name, start + begin, start + end, source.device).mul_(float(step)).add_(values)
        _cast_into(target[begin:end], values)


def update(master: "torch.Tensor", *, name: str, terms: "Sequence[tuple[int, np.float32]]", start: int = 0) -> int:
    """Adds Σ R(step·n) to `master` in place; returns how many elements are NaN afterwards.

    Args:
        master: fp32, any shape, contiguous; elements `start` onward of the tensor `name`.
        name: The tensor's checkpoint name.
        terms: (seed, step32(coefficient, scale)), one a seed (`noise.merge_terms`), in journal order; zero
            steps are skipped, and with none left the master is not touched.
        start: Flat index of the first element.

    Raises:
        TypeError: If `master` is not float32.
        ValueError: If `master` is not contiguous, or `start` or a seed is out of range.
    """
    import torch

    terms = [(seed, step) for seed, step in terms if step != 0]
    if not terms:
        return 0
    target, _ = flat_pair(master, master)
    not_numbers = 0
    for begin, end in _chunks(target.numel(), start):
        total = torch.zeros(end - begin, dtype=torch.float32, device=target.device)
        for seed, step in terms:
            total.add_(noise(seed, name, start + begin, start + end, target.device).mul_(float(step)))
        target[begin:end].add_(total)
        not_numbers += int(target[begin:end].isnan().sum())
    return not_numbers
