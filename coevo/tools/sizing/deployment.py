"""How a configuration spreads a model over devices, read from the options of its engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coevo.app.blueprint import Blueprint
from coevo.errors import UserError
from coevo.machine.resources import Gpu
from coevo.optional import Footprint, TellsFootprint, offers
from coevo.tools.sizing.architecture import Architecture
from coevo.tools.sizing.constants import GB, value

WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2, "half": 2, "float": 4}
"""Bytes of a served number. `auto` is bfloat16 on a GPU and, since most processors compute in it, on the CPU."""


def footprint_of(blueprint: Blueprint) -> Footprint:
    """What the engine that serves the model says of its options; one that says nothing is taken for a plain one."""
    name, given = blueprint.inner_engine()
    factory, engines = blueprint.inner_factory(), blueprint.registries.engines
    if not offers(factory, TellsFootprint):
        return Footprint()
    return factory.footprint(engines.defaults(name) | engines.validate(name, given))


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
    config, told, (inner, _) = blueprint.config, footprint_of(blueprint), blueprint.inner_engine()
    outer = blueprint.registries.engines.defaults(config.engine) | blueprint.options(config.engine)
    pool = config.engine if inner != config.engine else ""
    per_worker = outer.get("gpus") if pool else None
    shards, device = told.shards, told.device
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
    dtype = "bfloat16" if told.dtype == "auto" else told.dtype
    memory = told.memory or (0.9 if told.cache_tokens is None else 1.0)
    return Deployment(
        engine=inner,
        pool=pool,
        workers=workers,
        shards=shards,
        on_gpu=on_gpu,
        dtype=dtype,
        width=WIDTHS.get(dtype, 2),
        context=told.context or shape.context,
        sequences=max(1, min(told.rows or int(value("sequences")), asked)),
        cache_tokens=told.cache_tokens,
        cache_bytes=None if told.cache_gb is None or on_gpu else int(told.cache_gb * GB) // shards,
        share=memory if memory <= 1.0 else 1.0,
        reserved=None if memory <= 1.0 else int(memory * GB),
        master=told.master,
        cuts=told.cuts,
    )
