"""The fp32 master: the one copy of the weights that ES moves, and the source of everything served.

Usage:

    master = Master(select(folder, loaded), folder)
    master.serve_all(storage, seed, sigma)     # a member: written from the master, nothing to undo
    master.serve_all(storage, None, 0.0)       # the centre
    master.apply([(seed, coefficient), ...])   # the update; the served copies are stale from here on
    digest = master.digest()

It lives in memory shared between processes (`where="host"`) or in a file on disk (`where="disk"`), so that a
node needs one. A master on a device is the engine's own: see `torch_noise` and `triton_noise`.
"""

import mmap
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coevo.errors import CheckFailedError, RunError, UserError
from coevo.weights import kernels, memory, noise
from coevo.weights.digest import digest_of
from coevo.weights.dtypes import DType, Float32s, Stored
from coevo.weights.sample import Sample, gather, sample_of
from coevo.weights.selection import Selection, TensorSpec
from coevo.weights.stored import StoredTensor, open_checkpoint, open_file, shortened, write_file


class Master:
    """All selected tensors in fp32, loaded exactly from a checkpoint; see the module for its use.

    Not for several threads at once where one of them calls `apply` or `load_anchor`.

    Attributes:
        selection: What it holds.
        nbytes: The bytes that it occupies.
    """

    def __init__(
        self,
        selection: Selection,
        source_folder: Path,
        *,
        where: Literal["host", "disk"] = "host",
        scratch: Path | None = None,
        share_as: Path | None = None,
    ) -> None:
        """Reserves the memory and loads the checkpoint.

        Args:
            selection: The tensors to hold.
            source_folder: The checkpoint folder that they are selected from.
            where: `host` keeps a private master in memory, `disk` in a file that is unlinked at once.
            scratch: The folder of that file; with `host` it puts the file there too (a tmpfs, say).
            share_as: Makes it a named file, which appears complete and which others `attach`; it is the
                caller's to delete. `where` and `scratch` are then not used.

        Raises:
            UserError: If the checkpoint does not hold the selection, ties tensors that differ, or holds NaN,
                or if there is not enough room.
        """
        self.selection = selection
        stored = open_checkpoint(source_folder)
        memory.check_held(selection, stored)
        _, self.nbytes = memory.layout(selection)
        partial = None if share_as is None else share_as.with_name(f".{share_as.name}.{os.getpid()}.partial")
        try:
            self._memory = memory.reserve(self.nbytes, where, scratch, partial)
            self._memory[: len(memory.mark(selection))] = memory.mark(selection)
            self._index()
            self._load(stored)
            if partial is not None and share_as is not None:
                partial.replace(share_as)
        finally:
            if partial is not None:
                partial.unlink(missing_ok=True)

    @classmethod
    def attach(cls, selection: Selection, path: Path, *, writable: bool = False) -> "Master":
        """The master that another process shares as `path`; what that one applies is seen here.

        Args:
            selection: The same selection.
            path: What the owner called `share_as`.
            writable: Whether this process may `apply`; of the processes on a node only one may.

        Raises:
            UserError: If there is no such file, or it holds another selection.
        """
        self = cls.__new__(cls)
        self.selection = selection
        _, self.nbytes = memory.layout(selection)
        try:
            with path.open("r+b" if writable else "rb") as file:
                access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
                self._memory = mmap.mmap(file.fileno(), 0, access=access)
        except (OSError, ValueError) as error:
            raise UserError(f"cannot attach to the master {str(path)!r}: {error}") from None
        mark = memory.mark(selection)
        if len(self._memory) != self.nbytes or self._memory[: len(mark)] != mark:
            raise UserError(f"{str(path)!r} is not a master of this selection of {len(selection.tensors)} tensors")
        self._index()
        return self

    def _index(self) -> None:
        specs = self.selection.tensors
        self._specs = {name: spec for spec in specs for name in (spec.name, *spec.aliases)}
        self._views = memory.views(self._memory, self.selection)
        self._sample: Sample | None = None

    def _load(self, stored: Mapping[str, StoredTensor]) -> None:
        def load(spec: TensorSpec) -> None:
            memory.load_exactly(self._views[spec.name], spec, stored)

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for _ in pool.map(load, self.selection.tensors):
                pass

    def _spec(self, name: str) -> TensorSpec:
        if name not in self._specs:
            raise KeyError(f"{name!r} is not a selected tensor")
        return self._specs[name]

    def _refuse_readers(self) -> None:
        if not all(view.flags.writeable for view in self._views.values()):
            raise RuntimeError("this master is attached for reading; only its owner may change it")

    def view(self, name: str) -> Float32s:
        """The tensor called `name` (or an alias of it) in its shape: the master itself, not a copy."""
        return self._views[self._spec(name).name]

    def serve(self, name: str, seed: int | None, sigma: float, out: Stored, *, start: int | None = None) -> None:
        """Writes the served weights of one tensor.

        Args:
            name: The tensor.
            seed: The member's seed; None is the centre.
            sigma: Noise scale, negative for the antithetic twin; 0 is the centre.
            out: Where to: C-contiguous float32, uint16 (bfloat16 patterns) or float16, which decides the cast.
            start: With it `out` is a shard, elements `start` onward in C order; without, the whole tensor.

        Raises:
            KeyError: If no such tensor is selected.
            ValueError: If `out` is too small, too large or not contiguous, or sigma times the tensor's scale
                is not a finite float32.
        """
        spec = self._spec(name)
        values = self._views[spec.name]
        if start is not None:
            if start < 0:
                raise ValueError(f"start is {start}, expected a flat index of 0 or more")
            values = values.reshape(-1)[start : start + out.size]
        if seed is None:
            kernels.copy(values, out)
            return
        step = noise.step32(sigma, spec.scale)
        kernels.serve(values, out, seed=seed, name=spec.name, step=step, start=start or 0)

    def centre(self, name: str, out: Stored) -> None:
        """Writes the centre's weights of one tensor: a cast without arithmetic, -0.0 included."""
        self.serve(name, None, 0.0, out)

    def serve_all(self, outs: Mapping[str, Stored], seed: int | None, sigma: float) -> None:
        """Writes the served weights of every tensor; arguments as in `serve`.

        Raises:
            ValueError: If `outs` is not exactly the selected tensors, each under its name or an alias.
        """
        given = [self._specs[name].name if name in self._specs else name for name in outs]
        if sorted(given) != sorted(self._views):
            missing, extra = self._views.keys() - set(given), set(given) - self._views.keys()
            raise ValueError(
                f"serving wants each selected tensor once; missing: {shortened(sorted(missing)) or 'none'}, "
                f"not selected: {shortened(sorted(extra)) or 'none'}"
            )
        for name, out in outs.items():
            self.serve(name, seed, sigma, out)

    def apply(self, terms: Sequence[tuple[int, float]]) -> None:
        """Moves the master by Σ coefficient·noise(seed), in the order given.

        Terms of one seed are merged first (`noise.merge_terms`). All of them act in one pass over memory.

        Args:
            terms: (seed, coefficient) as the journal has them.

        Raises:
            ValueError: If a seed or a coefficient is out of range; nothing has been changed then.
            RuntimeError: If the master is attached for reading.
            RunError: If weights became NaN; the master is lost then and the run resumes from its journal.
        """
        self._refuse_readers()
        merged = noise.merge_terms(terms)
        for seed, _ in merged:
            noise.split64(seed)
        plans = [
            (spec, [(seed, noise.step32(coefficient, spec.scale)) for seed, coefficient in merged])
            for spec in self.selection.tensors
        ]
        for spec, steps in plans:
            if not_numbers := kernels.update(self._views[spec.name], name=spec.name, terms=steps):
                raise RunError(
                    f"the update turned {not_numbers} weights of {spec.name!r} into NaN: alpha is far too large; "
                    "the run can be resumed before it"
                )

    def digest(self) -> str:
        """`weights_digest` of the master as it is now, 64 hex digits."""
        return digest_of(self._views)

    @property
    def sample(self) -> Sample:
        """The fixed sample of weights, a function of the selection; frozen tensors (scale 0) are not in it."""
        if self._sample is None:
            self._sample = sample_of(self.selection.tensors)
        return self._sample

    def sampled(self, seed: int | None = None, sigma: float = 0.0) -> Float32s:
        """The sampled weights of a member, or of the centre for None, before they are cast: float32 (S,)."""

        def read(spec: TensorSpec, positions: NDArray[np.int64]) -> Float32s:
            values = self._views[spec.name]
            if seed is None:
                return values.reshape(-1)[positions]
            step = noise.step32(sigma, spec.scale)
            return kernels.perturb_at(values, positions, seed=seed, name=spec.name, step=step)

        return gather(self.sample, read)

    def moved(self, seed: int, sigma: float, dtype: DType) -> float:
        """Share of the sample whose served bits differ from the centre's, 0 to 1."""
        member, centre = (noise.cast(self.sampled(*who), dtype) for who in ((seed, sigma), (None, 0.0)))
        unsigned = f"u{member.itemsize}"
        return np.count_nonzero(member.view(unsigned) != centre.view(unsigned)) / max(1, member.size)

    def save_anchor(self, path: Path) -> str:
        """Writes the master as an fp32 safetensors file, atomically and synced; returns its digest."""
        digest = self.digest()
        tensors: dict[str, tuple[DType, tuple[int, ...]]] = {
            spec.name: ("float32", spec.shape) for spec in self.selection.tensors
        }
        write_file(path, tensors, lambda name: self._views[name], {"format": "coevo-anchor", "digest": digest})
        return digest

    def load_anchor(self, path: Path, digest: str) -> None:
        """Replaces the master by an anchor, after checking it.

        Args:
            path: A file from `save_anchor`.
            digest: What the journal says that it holds.

        Raises:
            UserError: If it is not a safetensors file.
            RuntimeError: If the master is attached for reading.
            CheckFailedError: If it holds other tensors or other values; the master is unchanged then.
        """
        self._refuse_readers()
        stored, _ = open_file(path)
        if {name: (entry.code, entry.shape) for name, entry in stored.items()} != {
            spec.name: ("F32", spec.shape) for spec in self.selection.tensors
        }:
            raise CheckFailedError(f"the anchor {str(path)!r} holds other tensors than the run's selection")
        arrays = {name: entry.read() for name, entry in stored.items()}
        if (found := digest_of(arrays)) != digest:
            raise CheckFailedError(f"the anchor {str(path)!r} has digest {found}, the journal says {digest}")
        for name, values in arrays.items():
            self._views[name][...] = values
