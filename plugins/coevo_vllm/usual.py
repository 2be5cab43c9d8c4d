"""In a worker: how published scripts make a member ready, to be compared with."""

from __future__ import annotations

import torch

from coevo_vllm.streaming import Streaming


class Usual:
    """Noise of torch's generator added to every tensor in place, in its own format, and subtracted after the member.

    Done on plain copies of the worker's tensors: on the CPU vLLM packs most of its own, and a loop over its
    parameters would be fast because it misses them.
    """

    def __init__(self, streaming: Streaming) -> None:
        self._tensors = [tensor.clone() for _, tensor in streaming.centre()]
        device = streaming.maker.device
        self._generator = torch.Generator(device)
        self._device = device

    def member(self, seed: int, sigma: float) -> None:
        """Everything that a member costs: its noise is drawn and added, and drawn and subtracted."""
        for sign in (1.0, -1.0):
            self._add(seed, sign * sigma)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def _add(self, seed: int, sigma: float) -> None:
        with torch.inference_mode():
            for tensor in self._tensors:
                self._generator.manual_seed(seed)
                noise = torch.randn(tensor.shape, generator=self._generator, dtype=tensor.dtype, device=tensor.device)
                tensor.add_(sigma * noise)
