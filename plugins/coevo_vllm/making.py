"""In a worker: one served tensor from the master, on the host or on the device; the same bits either way."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from coevo.weights import noise
from coevo.weights.dtypes import DType
from coevo.weights.master import Master
from coevo.weights.selection import TensorSpec
from coevo.weights.torch_memory import as_numpy

PIECE = 1 << 26
"""Elements of the master that are on the device at once: 256 MB of fp32."""


class Maker(ABC):
    """Makes tensors of members.

    Attributes:
        route: `host` or `device`.
        device: Where they end up.
    """

    route: str
    device: torch.device

    @abstractmethod
    def make(self, spec: TensorSpec, dtype: DType, seed: int | None, sigma: float) -> torch.Tensor:
        """The tensor of a member, or of the centre for None, in the checkpoint's shape."""

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class HostMaker(Maker):
    """Noise and cast on the host's cores, then the served format is sent: half the bytes of the master."""

    route = "host"

    def __init__(self, master: Master, device: torch.device) -> None:
        self._master, self.device = master, device

    def make(self, spec: TensorSpec, dtype: DType, seed: int | None, sigma: float) -> torch.Tensor:
        """See `Maker`."""
        pinned = self.device.type == "cuda"
        out = torch.empty(spec.shape, dtype=torch_dtype(dtype), pin_memory=pinned)
        self._master.serve(spec.name, seed, sigma, as_numpy(out))
        return out.to(self.device, non_blocking=True) if pinned else out


class DeviceMaker(Maker):
    """The master is streamed in pieces and the device adds the noise: what a host with few cores is for."""

    route = "device"

    def __init__(self, master: Master, device: torch.device, piece: int = PIECE) -> None:
        self._master, self.device, self._piece = master, device, piece
        pinned = device.type == "cuda"
        # Two, so that one is filled while the other is on its way.
        self._staging = [torch.empty(piece, dtype=torch.float32, pin_memory=pinned) for _ in range(2 if pinned else 1)]
        self._sent: list[Any] = [None] * len(self._staging)
        self._turn = 0

    def make(self, spec: TensorSpec, dtype: DType, seed: int | None, sigma: float) -> torch.Tensor:
        """See `Maker`."""
        from coevo.weights import torch_noise, triton_noise

        serve = triton_noise.serve if self.device.type == "cuda" else torch_noise.serve
        step = np.float32(0) if seed is None else noise.step32(sigma, spec.scale)
        out = torch.empty(spec.shape, dtype=torch_dtype(dtype), device=self.device)
        flat, values = out.reshape(-1), self._master.view(spec.name).reshape(-1)
        for start in range(0, spec.size, self._piece):
            stop = min(start + self._piece, spec.size)
            piece = self._send(values[start:stop])
            serve(piece, flat[start:stop], seed=seed or 0, name=spec.name, step=step, start=start)
        return out

    def _send(self, values: np.ndarray[Any, Any]) -> torch.Tensor:
        turn, self._turn = self._turn, (self._turn + 1) % len(self._staging)
        staging = self._staging[turn][: len(values)]
        if self._sent[turn] is not None:
            self._sent[turn].synchronize()  # what lay there may still be on its way
        staging.numpy()[...] = values
        if self.device.type != "cuda":
            return staging
        sent = staging.to(self.device, non_blocking=True)
        event: Any = torch.cuda.Event()
        event.record()  # pyright: ignore[reportUnknownMemberType]
        self._sent[turn] = event
        return sent


def choose(route: str, master: Master, device: torch.device, dtype: DType) -> tuple[Maker, dict[str, float]]:
    """The way to make members that is asked for, or by a measurement the faster one.

    Args:
        route: `host`, `device`, or `auto`: on the CPU the host, elsewhere both are timed on the largest tensor.
        master: The master.
        device: Where members are served.
        dtype: The format.

    Returns:
        The maker, and seconds by route where they were measured.
    """
    if route == "device":
        return DeviceMaker(master, device), {}
    if route == "host" or device.type == "cpu":
        return HostMaker(master, device), {}
    spec = max(master.selection.tensors, key=lambda each: each.size)
    makers: list[Maker] = [HostMaker(master, device), DeviceMaker(master, device)]
    seconds: dict[str, float] = {}
    for maker in makers:
        maker.make(spec, dtype, 1, 1e-3)  # compiles
        maker.wait()
        started = time.perf_counter()
        maker.make(spec, dtype, 1, 1e-3)
        maker.wait()
        seconds[maker.route] = time.perf_counter() - started
    return min(makers, key=lambda maker: seconds[maker.route]), seconds


def torch_dtype(dtype: DType) -> torch.dtype:
    """Torch's name of a format."""
    return {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}[dtype]
