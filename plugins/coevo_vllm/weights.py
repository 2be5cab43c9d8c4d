"""The node's master, and the workers that serve from it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from coevo.errors import UserError
from coevo.records import Json
from coevo.weights.derived import DerivedWeights, Served
from coevo.weights.digest import digest_of
from coevo.weights.dtypes import DType, Stored
from coevo.weights.master import Master
from coevo.weights.memory import layout
from coevo.weights.selection import Selection, TensorSpec

Rpc = Callable[..., list[Any]]
"""`collective_rpc`: method and arguments → what each worker returned."""

SHARED_MEMORY = Path("/dev/shm")


class VllmWeights(DerivedWeights):
    """The master of this node, in a file that the workers map; this process alone changes it.

    The file has no name once they have it: a killed run leaves nothing behind.

    Attributes:
        workers: What each said of itself.
        formats: Name → format, of tensors that could be read back.
        readable: Names of those that lie somewhere in plain sight; None before `trace` has looked.
        copied: Names of those among them that vLLM multiplies with a packed copy of, such as a head.
    """

    def __init__(
        self,
        selection: Selection,
        folder: Path,
        rpc: Rpc,
        dtype: DType,
        *,
        where: Literal["host", "disk"] = "host",
        route: str = "auto",
    ) -> None:
        """Loads the master, has the workers attach to it and serves the centre.

        Args:
            selection: Tensors by checkpoint name.
            folder: The checkpoint.
            rpc: Calls the workers.
            dtype: What vLLM serves in.
            where: `host` is shared memory where it has room, else a file as for `disk`.
            route: Where members are made; see `coevo_vllm.making`.
        """
        place = Path(tempfile.mkdtemp(prefix="coevo-", dir=_place(layout(selection)[1], where)))
        try:
            shared = place / "master"
            super().__init__(Master(selection, folder, share_as=shared))
            self._rpc = rpc
            self._default: DType = dtype
            text = json.dumps(selection.to_json())
            self.workers = cast("list[dict[str, Json]]", rpc("coevo_open", text, str(shared), route))
        finally:
            shutil.rmtree(place, ignore_errors=True)
        self.formats: dict[str, DType] = {}
        self.readable: frozenset[str] | None = None
        self.copied: frozenset[str] = frozenset()
        self._specs = {spec.name: spec for spec in selection.tensors}
        self.begin(self.dtype_of, None)

    def _write(self, was: Served, perturbation: Any) -> None:
        if perturbation is None:
            self._rpc("coevo_serve", None, 0.0)
        else:
            self._rpc("coevo_serve", perturbation.seed, float(perturbation.sigma))

    def serve_alone(self, group: Sequence[str], name: str, seed: int, sigma: float, spared: Sequence[int] = ()) -> None:
        """Serve the centre but for one tensor; `group` is loaded again with it."""
        self._current = "nothing"
        self._rpc("coevo_serve_alone", list(group), name, seed, sigma, list(spared))

    def trace(self, groups: Sequence[Sequence[str]]) -> None:
        """Find out which tensors can be read back, and in which format they are held."""
        self._current = "nothing"
        found = self._rpc("coevo_trace", [list(group) for group in groups])
        held: dict[str, int] = {}
        copied: set[str] = set()
        for worker in cast("list[dict[str, list[Any]]]", found):
            for name, (dtype, size, has_copy) in worker.items():
                self.formats[name] = dtype
                held[name] = held.get(name, 0) + int(size)
                if has_copy:
                    copied.add(name)
        self.readable = frozenset(name for name, size in held.items() if size >= self._specs[name].size)
        self.copied = self.readable & copied
        self.serve(None)

    @property
    def packed(self) -> tuple[str, ...]:
        """Names of the tensors that vLLM holds in a form of its own, which differ by processor and format.

        Raises:
            UserError: Nobody has looked, because there was no canary.
        """
        if self.readable is None:
            raise UserError("which tensors vLLM has packed is found out by the canary; set vllm.canary to true")
        return tuple(name for name in self._specs if name not in self.readable)

    def read(self, name: str) -> Stored | None:
        """A tensor as the workers hold it together, bfloat16 as uint16 patterns; None where it cannot be read."""
        from coevo_vllm.streaming import assemble

        if self.readable is None or name not in self.readable:
            return None
        parts = [part for worker in self._rpc("coevo_read", name) for part in worker]
        return assemble(parts, self._specs[name])

    def served_digest(self) -> str:
        """The digest over what generates, read back now.

        Raises:
            UserError: Some of it is packed, or there was no canary.
        """
        if hidden := self.packed:
            raise UserError(
                f"vLLM holds {len(hidden)} of {len(self._specs)} tensors packed, such as {hidden[0]!r}: they cannot be "
                "read back; the canary proves them through the answers"
            )
        return digest_of(cast("Mapping[str, Stored]", {name: self.read(name) for name in self._specs}))

    def dtype_of(self, spec: TensorSpec) -> DType:
        """The format that a tensor is held in."""
        return self.formats.get(spec.name, self._default)


def _place(size: int, where: str) -> str | None:
    """Where a shared file of `size` bytes goes: shared memory if it has room, else None for the usual folder."""
    if where != "host" or not SHARED_MEMORY.is_dir() or not os.access(SHARED_MEMORY, os.W_OK):
        return None
    return str(SHARED_MEMORY) if shutil.disk_usage(SHARED_MEMORY).free > 1.1 * size else None
