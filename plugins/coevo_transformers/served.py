"""What the model generates with: written from the fp32 master for every member, never undone."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from coevo.errors import CheckFailedError, UserError
from coevo.records import Perturbation, SeedsUpdate, Update
from coevo.weights import noise
from coevo.weights.digest import digest_of
from coevo.weights.dtypes import DType, Stored
from coevo.weights.master import Master
from coevo.weights.reach import Reach
from coevo.weights.selection import Selection, TensorSpec
from coevo.weights.stored import open_file

Served: TypeAlias = Perturbation | Literal["nothing"] | None
"""What the parameters hold: a member, the centre (None), or weights that are out of date."""

_AS_NUMPY = {torch.bfloat16: (torch.int16, np.uint16), torch.float16: (torch.float16, np.float16)}


class ServedWeights:
    """The master, and the model's own parameters as what is served from it.

    On the CPU the kernels write straight into the parameters' memory. On another device the member is made
    on the host and sent, tensor by tensor, or made there from a copy of the master (`mirror`).

    Attributes:
        master: The fp32 master.
        apply_seconds: Wall time of all updates so far.
        note: How they are served, for the start line, where it is not this way.
        derived: Whether what is served is a function of the master.
    """

    note = ""
    derived = True

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
        self.selection = selection
        self.master = Master(selection, folder, where="disk" if where == "disk" else "host")
        self._parameters = {
            spec.name: next(parameters[name] for name in (spec.name, *spec.aliases) if name in parameters)
            for spec in selection.tensors
        }
        self._mirror: dict[str, torch.Tensor] | None = {} if where == "device" else None
        self._mirror_stale = True
        self._current: Served = "nothing"
        self._digest = ""
        self.apply_seconds = 0.0
        self.serve(None)
        self._reach = Reach(self.master, self._dtype, self._read_at, derived=self.derived)

    @property
    def dtype(self) -> DType:
        """The format of most of the weights that are served."""
        return self._dtype(max(self.selection.tensors, key=lambda spec: spec.size))

    def _dtype(self, spec: TensorSpec) -> DType:
        return cast(DType, str(self._parameters[spec.name].dtype).removeprefix("torch."))

    def serve(self, perturbation: Perturbation | None) -> None:
        """Make the parameters those of a member, or of the centre; free where they are already.

        Raises:
            ValueError: The noise family is unknown, or sigma is not finite in fp32.
        """
        if perturbation is not None:
            if perturbation.family != noise.FAMILY:
                raise ValueError(f"noise family {perturbation.family!r} is unknown; expected {noise.FAMILY!r}")
            if perturbation.sigma == 0:
                perturbation = None
        if self._current == perturbation:
            return
        was, self._current = self._current, "nothing"  # an exception half way leaves neither the old nor the new
        self._write(was, perturbation)
        self._current = perturbation

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

    def digest(self) -> str:
        """The `weights_digest` of the master; made once an update."""
        if not self._digest:
            self._digest = self.master.digest()
        return self._digest

    def identity(self) -> str:
        """What of the centre goes into a policy's name."""
        return self.digest()

    def apply(self, update: Update) -> None:
        """Move the master; what is served is made anew at the next `serve`.

        Raises:
            ValueError: An update that is no `seeds` update of the known family.
            RunError: Weights became NaN.
        """
        if not isinstance(update, SeedsUpdate):
            raise ValueError(f"this engine applies seeds updates, got a {type(update).__name__}")
        if update.family != noise.FAMILY:
            raise ValueError(f"noise family {update.family!r} is unknown; expected {noise.FAMILY!r}")
        if not update.terms:
            return
        started = time.monotonic()
        self._settle()
        with self._reach.update():
            self._move(update.terms)
        self.apply_seconds += time.monotonic() - started

    def _settle(self) -> None:
        """Before an update: compare what has been serving until now with what it should have been."""
        if self._current is None:
            self._reach.check(None, 0.0)
        elif self._current != "nothing":
            self._reach.check(self._current.seed, self._current.sigma)

    def _move(self, terms: Sequence[tuple[int, float]]) -> None:
        self._changed()
        self.master.apply(terms)

    def load_anchor(self, path: Path) -> None:
        """Take the master from an anchor; one that does not hold what it says leaves it as it was."""
        try:
            self.master.load_anchor(path, open_file(path)[1].get("digest", ""))
        except (CheckFailedError, UserError):
            return  # torn or damaged: the caller compares digests and takes an older one
        self._changed()

    def _changed(self) -> None:
        self._current, self._digest, self._mirror_stale = "nothing", "", True

    def reached(self) -> dict[str, float]:
        """How much of the updates reached what generates; see `coevo.weights.reach`.

        `drift` and `drifted` are of what was serving when the update came, against its definition.
        """
        return self._reach.told()

    def _read_at(self, spec: TensorSpec, positions: NDArray[np.int64]) -> Stored:
        flat = self._parameters[spec.name].data.reshape(-1)
        if flat.device.type == "cpu":
            return as_numpy(flat)[positions]
        return as_numpy(flat[torch.tensor(positions, device=flat.device)].cpu())

    def moved(self, perturbation: Perturbation) -> float:
        """Share of a fixed sample of weights whose served value the perturbation changes, 0 to 1."""
        return self.master.moved(perturbation.seed, perturbation.sigma, self.dtype)


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


def as_numpy(tensor: torch.Tensor) -> Stored:
    """The memory of a CPU tensor as numpy sees it, same shape; bfloat16 as uint16 patterns."""
    through, held = _AS_NUMPY.get(tensor.dtype, (tensor.dtype, np.float32))
    return cast(Stored, tensor.detach().view(through).numpy().view(cast(Any, held)))
