"""What the model generates with: written from the fp32 master for every member, never undone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from coevo.records import Perturbation
from coevo.weights import noise
from coevo.weights.derived import DerivedWeights, Served
from coevo.weights.digest import digest_of
from coevo.weights.dtypes import DType, Stored
from coevo.weights.master import Master
from coevo.weights.selection import Selection, TensorSpec
from coevo.weights.torch_memory import as_numpy


class ServedWeights(DerivedWeights):
    """The master, and the model's own parameters as what is served from it.

    On the CPU the kernels write straight into the parameters' memory. On another device the member is made
    on the host and sent, tensor by tensor, or made there from a copy of the master (`mirror`).

    Attributes:
        note: How they are served, for the start line, where it is not this way.
    """

    note = ""

    def __init__(
        self,
        selection: Selection,
        folder: Path,
        parameters: Mapping[str, torch.nn.Parameter],
        *,
        where: Literal["host", "disk", "device"] = "host",
    ) -> None:
        """Loads the master and serves the centre.

        Args:
            selection: Tensors by checkpoint name; each is a parameter under its name or an alias.
            folder: The checkpoint.
            parameters: The model's.
            where: `device` keeps a copy of the master beside the parameters, the master itself on the host.
        """
        super().__init__(Master(selection, folder, where="disk" if where == "disk" else "host"))
        self._parameters = {
            spec.name: next(parameters[name] for name in (spec.name, *spec.aliases) if name in parameters)
            for spec in selection.tensors
        }
        self._mirror: dict[str, torch.Tensor] | None = {} if where == "device" else None
        self._mirror_stale = True
        self.begin(self._served_dtype, self._read_at)

    def _served_dtype(self, spec: TensorSpec) -> DType:
        return cast(DType, str(self._parameters[spec.name].dtype).removeprefix("torch."))

    def _write(self, was: Served, perturbation: Perturbation | None) -> None:
        """Change the parameters from what they were, which does not matter here."""
        seed, sigma = (None, 0.0) if perturbation is None else (perturbation.seed, perturbation.sigma)
        if self._mirror is None:
            for name, parameter in self._parameters.items():
                self._serve_from_host(name, parameter, seed, sigma)
        else:
            self._serve_from_mirror(self._mirror, seed, sigma)

    def _serve_from_host(self, name: str, parameter: torch.nn.Parameter, seed: int | None, sigma: float) -> None:
        if parameter.device.type == "cpu":
            self.master.serve(name, seed, sigma, as_numpy(parameter.data))
            return
        staged = torch.empty(parameter.shape, dtype=parameter.dtype, pin_memory=torch.cuda.is_available())
        self.master.serve(name, seed, sigma, as_numpy(staged))
        parameter.data.copy_(staged)

    def _serve_from_mirror(self, mirror: dict[str, torch.Tensor], seed: int | None, sigma: float) -> None:
        from coevo.weights import torch_noise, triton_noise

        for spec in self.selection.tensors:
            target = self._parameters[spec.name].data
            if self._mirror_stale or spec.name not in mirror:
                mirror[spec.name] = torch.tensor(self.master.view(spec.name), device=target.device)
            make = triton_noise.serve if target.device.type == "cuda" else torch_noise.serve
            step = noise.step32(sigma, spec.scale) if seed is not None else np.float32(0)
            make(mirror[spec.name], target, seed=seed or 0, name=spec.name, step=step)
        self._mirror_stale = False

    def read(self, name: str) -> Stored:
        """What generates, read back: a view or copy of the parameter, bfloat16 as uint16 patterns."""
        return as_numpy(self._parameters[name].data.cpu())

    def served_digest(self) -> str:
        """The digest over what generates, read back now."""
        return digest_of(_Reading(self))

    def _changed(self) -> None:
        super()._changed()
        self._mirror_stale = True

    def _read_at(self, spec: TensorSpec, positions: NDArray[np.int64]) -> Stored:
        flat = self._parameters[spec.name].data.reshape(-1)
        if flat.device.type == "cpu":
            return as_numpy(flat)[positions]
        return as_numpy(flat[torch.tensor(positions, device=flat.device)].cpu())


class _Reading(Mapping[str, Stored]):
    """The served tensors by name, read when asked for."""

    def __init__(self, weights: ServedWeights) -> None:
        self._weights = weights
        self._names = [spec.name for spec in weights.selection.tensors]

    def __getitem__(self, name: str) -> Stored:
        return self._weights.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
