"""In a worker: from the node's fp32 master to what vLLM generates with, tensor by tensor, through vLLM's own reload."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from coevo.records import Json
from coevo.weights.dtypes import DType, Stored
from coevo.weights.master import Master
from coevo.weights.selection import Selection, TensorSpec
from coevo.weights.torch_memory import as_numpy
from coevo_vllm.layout import Runs, decode, digit, digits_needed, places, runs_of, spread
from coevo_vllm.making import Maker, choose, torch_dtype

KERNEL = "cpu_linear"
"""Where a module of vLLM on the CPU has what it multiplies with: a function that holds the packed copy, if any."""


class Streaming:
    """A worker's model and the master that it is served from.

    Attributes:
        master: The node's, attached for reading.
        maker: Makes the tensors of a member.
    """

    def __init__(self, worker: Any, selection: dict[str, Json], path: str, route: str) -> None:
        """Attach to the master.

        Args:
            worker: vLLM's worker.
            selection: The selection as JSON data.
            path: The file that the master is shared as.
            route: `host`, `device` or `auto`.
        """
        self._worker = worker
        self._model: torch.nn.Module = worker.get_model()
        self._sharing = sharing(self._model)
        self.master = Master.attach(Selection.from_json(selection), Path(path))
        self._specs = {spec.name: spec for spec in self.master.selection.tensors}
        self._default: DType = cast(DType, str(worker.model_config.dtype).removeprefix("torch."))
        self._formats: dict[str, DType] = {}
        self._layout: dict[str, list[Runs]] = {}
        self._heard: list[str] = []
        self._plain_logits: Any = None
        device = torch.device(worker.device)
        self.maker, self._measured = choose(route, self.master, device, self._default)

    def describe(self) -> dict[str, Json]:
        """Facts for the start line."""
        return {
            "route": self.maker.route,
            "seconds": self._measured,
            "device": str(self.maker.device),
            "processor": processor(),
            "threads": torch.get_num_threads(),
            "rank": int(getattr(self._worker, "rank", 0)),
        }

    def serve(self, seed: int | None, sigma: float) -> float:
        """Serve a member, or the centre for None; returns seconds."""
        started = time.perf_counter()
        self._load(self._members(self.maker, list(self._specs.values()), seed, sigma))
        self.maker.wait()
        return time.perf_counter() - started

    def _members(
        self, maker: Maker, specs: Sequence[TensorSpec], seed: int | None, sigma: float
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for spec in specs:
            yield spec.name, maker.make(spec, self._format(spec.name), seed, sigma)

    def centre(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All tensors of the centre, in the checkpoint's shapes."""
        return self._members(self.maker, list(self._specs.values()), None, 0.0)

    def _format(self, name: str) -> DType:
        return self._formats.get(name, self._default)

    def _load(self, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Through vLLM's reload, which fuses, shards and packs; what is not named keeps its weights."""
        before = [[vars(module).get(KERNEL) for module in sharers] for sharers in self._sharing]
        with torch.inference_mode():
            self._worker.reload_weights(weights_iterator=tensors)
            self._pack_again(before)

    def _pack_again(self, before: Sequence[Sequence[Any]]) -> None:
        """Make the packed copies of tied weights anew that vLLM's reload has left as they were.

        It processes a module when the module's own tensors were loaded. A head that is tied to the embedding gets
        none: it shares the embedding's memory and, where that is packed, goes on multiplying with the packed copy of
        before. Where nothing is packed the head reads the shared memory, and is only told so again.

        Args:
            before: What the modules of `_sharing` multiplied with before the reload.
        """
        for sharers, kernels in zip(self._sharing, before, strict=True):
            stale = [m for m, kernel in zip(sharers, kernels, strict=True) if vars(m).get(KERNEL) is kernel]
            if len(stale) < len(sharers):  # else none of them was loaded
                for module in stale:
                    cast(Any, module).quant_method.process_weights_after_loading(module)

    def serve_alone(self, group: Sequence[str], name: str, seed: int, sigma: float, spared: Sequence[int]) -> None:
        """Load the tensors of `group` at the centre, `name` among them as of the member, but for rows `spared`."""

        def tensors() -> Iterator[tuple[str, torch.Tensor]]:
            for each in group:
                spec = self._specs[each]
                tensor = self.maker.make(spec, self._format(each), seed if each == name else None, sigma)
                if each == name and spared:
                    centre = self.maker.make(spec, self._format(each), None, 0.0)
                    rows = torch.tensor(list(spared), device=tensor.device)
                    tensor[rows] = centre[rows]
                yield each, tensor

        self._load(tensors())
        self.maker.wait()

    def trace(self, groups: Sequence[Sequence[str]]) -> dict[str, Json]:
        """Find out where the tensors lie, group by group; see `coevo_vllm.layout`. What is served is lost.

        Returns:
            Name → [format, elements found here, whether what multiplies holds a copy of them].
        """
        offsets: dict[str, tuple[int, int]] = {}
        total = 0
        for spec in self._specs.values():
            offsets[spec.name] = (total, spec.size)
            total += spec.size
        count = digits_needed(total)
        self._layout = {}
        for group in groups:
            self._trace_group({name: offsets[name] for name in group}, count, total)
        self._formats = {
            name: cast(DType, str(self._parameter(runs[0].parameter).dtype).removeprefix("torch."))
            for name, runs in self._layout.items()
        }
        modules = cast(Any, self._model).named_modules()
        copied = {f"{path}.weight" for path, module in modules if _holds_copy(module)}
        return {
            name: [
                self._format(name),
                sum(int(runs.length.sum()) for runs in parts),
                any(runs.parameter in copied for runs in parts),
            ]
            for name, parts in self._layout.items()
        }

    def _trace_group(self, offsets: dict[str, tuple[int, int]], count: int, total: int) -> None:
        found: dict[str, list[NDArray[np.uint8]]] = {}
        for which in range(count):
            self._load(self._digits(offsets, which, count))
            for name, parameter in self._readable():
                if which == 0 and not _holds_digits(parameter):
                    continue  # not of this group
                if which == 0 or name in found:
                    # What is no digit becomes some digit: the check sum finds it out.
                    flat = parameter.detach().reshape(-1).float().nan_to_num().clamp(0, 255)
                    found.setdefault(name, []).append(flat.to(torch.uint8).cpu().numpy())
        for name, values in found.items():
            for tensor, runs in runs_of(name, decode(values, total), offsets).items():
                self._layout.setdefault(tensor, []).append(runs)

    def _digits(
        self, offsets: dict[str, tuple[int, int]], which: int, count: int
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for name, (offset, size) in offsets.items():
            values = cast(Any, torch).from_numpy(digit(places(offset, size), which, count))
            yield name, values.reshape(self._specs[name].shape).to(self.maker.device, torch_dtype(self._default))

    def _readable(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, parameter in self._model.named_parameters():
            if parameter.numel() and parameter.dtype in (torch.bfloat16, torch.float16, torch.float32):
                yield name, parameter

    def _parameter(self, name: str) -> torch.nn.Parameter:
        return self._model.get_parameter(name)

    def read(self, name: str) -> list[list[Any]]:
        """Parts of a tensor as they are now: [format, starts, lengths, bytes]."""
        parts: list[list[Any]] = []
        for runs in self._layout.get(name, ()):
            flat: Stored = as_numpy(self._parameter(runs.parameter).detach().cpu().reshape(-1))
            data = np.ascontiguousarray(runs.gathered(cast(Any, flat))).tobytes()
            parts.append([self._format(name), runs.start.tolist(), runs.length.tolist(), data])
        return parts

    def listen(self, listening: bool) -> None:
        """Keep a digest of the logits of every forward, or no longer."""
        model = cast(Any, self._model)
        if self._plain_logits is not None:
            model.compute_logits = self._plain_logits
            self._plain_logits = None
        self._heard = []
        if listening:
            plain = self._plain_logits = model.compute_logits

            def heard(*arguments: Any, **named: Any) -> Any:
                logits = plain(*arguments, **named)
                if logits is not None:
                    values = logits.detach().float().cpu().contiguous().numpy()
                    self._heard.append(hashlib.sha256(values.tobytes()).hexdigest())
                return logits

            model.compute_logits = heard

    def heard(self) -> list[str]:
        """The digests since the last call."""
        heard, self._heard = self._heard, []
        return heard


def processor() -> str:
    """The instructions that this processor has: what vLLM packs on it, and for which kernel, follows from them."""
    capabilities = getattr(torch.cpu, "get_capabilities", None)
    if capabilities is None:
        return torch.backends.cpu.get_cpu_capability()
    return " ".join(sorted(str(name) for name, has in capabilities().items() if has is True))


def sharing(model: torch.nn.Module) -> list[list[torch.nn.Module]]:
    """Modules with one weight between them of which each has a kernel of its own, such as embedding and tied head."""
    found: dict[int, list[torch.nn.Module]] = {}
    for module in model.modules():
        weight = getattr(module, "weight", None)
        if KERNEL in vars(module) and hasattr(module, "quant_method") and weight is not None and weight.numel():
            found.setdefault(id(weight), []).append(module)
    return [sharers for sharers in found.values() if len(sharers) > 1]


def _holds_copy(module: torch.nn.Module) -> bool:
    """Whether a module multiplies with something that its kernel brings along, not with the weight it is given."""
    return bool(getattr(vars(module).get(KERNEL), "__closure__", None))


def _holds_digits(parameter: torch.nn.Parameter) -> bool:
    """Whether much of it is whole numbers from 0 to 255; padding may be anything."""
    values = parameter.detach().float()
    digits = (values == values.round()) & (values >= 0) & (values <= 255)
    return bool(digits.float().mean() > 0.25)


def assemble(parts: Sequence[Sequence[Any]], spec: TensorSpec) -> Stored | None:
    """A tensor out of what the workers hold of it, bfloat16 as uint16 patterns; None if a part is missing.

    Parts that several workers hold must be equal, as replicated tensors are.

    Raises:
        ValueError: Two workers hold different values of the same elements.
    """
    formats = {part[0] for part in parts}
    if len(formats) != 1:
        return None
    held: Any = {"bfloat16": np.uint16, "float16": np.float16, "float32": np.float32}[formats.pop()]
    out = np.zeros(spec.size, dtype=held)
    known = np.zeros(spec.size, dtype=bool)
    for _, starts, lengths, data in parts:
        at = spread(np.array(starts, dtype=np.int64), np.array(lengths, dtype=np.int64))
        values = np.frombuffer(data, dtype=held)
        twice = known[at]
        unsigned = f"u{values.itemsize}"
        if not np.array_equal(out[at][twice].view(unsigned), values[twice].view(unsigned)):
            raise ValueError(f"workers hold different values of {spec.name!r}")
        out[at] = values
        known[at] = True
    return cast(Stored, out.reshape(spec.shape)) if known.all() else None


def groups_of(specs: Sequence[TensorSpec]) -> list[list[str]]:
    """Tensors that a reload must bring together: those of one layer, since a fused parameter is made of several.

    Layers are told by the first number in a name; a tensor without one is alone.
    """
    groups: dict[str, list[str]] = {}
    for spec in specs:
        parts = spec.name.split(".")
        numbers = [i for i, part in enumerate(parts) if part.isdigit()]
        key = ".".join(parts[: numbers[0] + 1]) if numbers else spec.name
        groups.setdefault(key, []).append(spec.name)
    return list(groups.values())
