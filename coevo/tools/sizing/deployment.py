"""How a configuration spreads a model over devices, read from the options of its engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coevo.app.blueprint import Blueprint
from coevo.errors import UserError
from coevo.host.discovery import Registries
from coevo.machine.resources import Gpu
from coevo.tools.sizing.architecture import Architecture
from coevo.tools.sizing.constants import GB, value

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}
"""Bytes of a served number. `auto` is bfloat16 on a GPU and, since most processors compute in it, on the CPU."""

# What different engines call the same thing.
CONTEXT = ("context", "max_model_len", "context_tokens")
TENSOR_PARALLEL = ("tensor_parallel", "tensor_parallel_size")
SEQUENCES = ("rows", "max_num_seqs", "sequences")
DEVICE_MEMORY = ("memory", "gpu_memory", "gpu_memory_utilization")


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model on devices.

    Attributes:
        engine: what generates.
        pool: the engine that has several of it, or empty.
        workers: how many there are.
        shards: devices of a worker, over which its tensors are cut.
        on_gpu: whether devices are GPUs; on the CPU everything is in main memory.
        width: bytes of a served number; `dtype` its name.
        context: longest prompt plus answer in tokens; None where nothing tells.
        sequences: answers that a worker computes at once at most.
        cache_tokens: most tokens of its key/value cache, None where that is not how it is limited.
        cache_bytes: the cache's fixed size; None, and no `cache_tokens`: it takes what is left of the device.
        share: of a device's memory, what the engine may use; `reserved` bytes instead where it says so.
        master: where the fp32 weights are: host, disk or device.
        cuts: whether the engine can cut tensors over devices.
    """

    engine: str
    pool: str
    workers: int
    shards: int
    on_gpu: bool
    dtype: str
    width: int
    context: int | None
    sequences: int
    cache_tokens: int | None
    cache_bytes: int | None
    share: float
    reserved: int | None
    master: str
    cuts: bool

    @property
    def devices(self) -> int:
        """GPUs that are needed, 0 on the CPU."""
        return self.workers * self.shards if self.on_gpu else 0

    @property
    def masters(self) -> int:
        """Copies of the fp32 master on the node: an engine's processes share one, the engines of a pool do not."""
        return self.workers

    def usable(self, memory: int) -> int:
        """Bytes of a device of `memory` bytes that the engine may use."""
        return int(self.share * memory) if self.reserved is None else min(self.reserved, memory)


def deployment(
    blueprint: Blueprint,
    shape: Architecture,
    asked: int,
    gpus: int | None,
    found: Sequence[Gpu],
) -> Deployment:
    """Read a configuration.

    Args:
        blueprint: what is to run.
        shape: gives the context where the engine names none.
        asked: requests that one policy gets at once at most.
        gpus: how many there are, where the user says so.
        found: those of this machine.

    Raises:
        UserError: tensor parallelism that the model cannot be cut into.
    """
    config, registries = blueprint.config, blueprint.registries
    outer = _with_defaults(registries, config.engine, blueprint.options(config.engine))
    inner, given = blueprint.inner_engine()
    pool = config.engine if inner != config.engine else ""
    options = _with_defaults(registries, inner, given)
    per_worker = outer.get("gpus") if pool else None
    shards = int(_first(options, TENSOR_PARALLEL) or 1)
    device = str(options.get("device") or "auto")
    wants_gpu = device.startswith("cuda") or bool(per_worker) or bool(gpus) or (device == "auto" and bool(found))
    on_gpu = wants_gpu and device != "cpu" and gpus != 0
    # A pool that is not told how many takes what there is.
    there = max(1, (gpus or len(found)) // shards) if on_gpu else 1
    workers = int(outer.get("workers") or there) if pool else 1
    if shape.heads is not None and shape.heads % shards:
        raise UserError(
            f"tensor parallelism {shards} does not divide the {shape.heads} attention heads of {config.model!r}"
        )
    if pool and per_worker is not None and on_gpu and per_worker < shards:
        raise UserError(
            f"{pool}.gpus got {per_worker}: tensor parallelism {shards} needs {shards} GPUs for each worker; "
            f"set {pool}.gpus={shards}"
        )
    dtype = str(options.get("dtype") or "auto")
    dtype = "bfloat16" if dtype == "auto" else dtype
    limit = int(_first(options, SEQUENCES) or value("sequences"))
    cache = options.get("cache_tokens")
    fixed = options.get("cache_gb")
    memory = float(_first(options, DEVICE_MEMORY) or (0.9 if cache is None else 1.0))
    return Deployment(
        engine=inner,
        pool=pool,
        workers=workers,
        shards=shards,
        on_gpu=on_gpu,
        dtype=dtype,
        width=WIDTHS.get(dtype, 2),
        context=int(_first(options, CONTEXT) or 0) or shape.context,
        sequences=max(1, min(limit, asked)),
        cache_tokens=None if cache is None else int(cache),
        cache_bytes=None if fixed is None or on_gpu else int(float(fixed) * GB) // shards,
        share=memory if memory <= 1.0 else 1.0,
        reserved=None if memory <= 1.0 else int(memory * GB),
        master=str(options.get("master") or "host"),
        cuts=any(name in options for name in TENSOR_PARALLEL),
    )


def _with_defaults(registries: Registries, engine: str, given: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {option.name: option.default for option in registries.engines.options(engine)}
    return {**defaults, **given}


def _first(options: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first of `names` that is set."""
    return next((options[name] for name in names if options.get(name)), None)
