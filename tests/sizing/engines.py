"""Engines with the options of those that need GPUs, as a plugin file. None can be made: a plan starts nothing."""

from typing import Any

import coevo
from coevo.optional import Footprint


class ShardedEngine:
    """Fills what is left of its devices with its cache, and cuts tensors over several."""

    @staticmethod
    def footprint(options):
        same = {name: options[name] for name in ("dtype", "context", "rows", "memory", "master")}
        return Footprint(shards=options["tensor_parallel"], cuts=True, **same)

    def __init__(
        self,
        model: str,
        *,
        dtype: str = "auto",
        tensor_parallel: int = 1,
        context: int = 0,
        rows: int = 256,
        memory: float = 0.85,
        master: str = "host",
    ) -> None:
        raise AssertionError("a plan made an engine")


class PoolEngine:
    """Several of another engine."""

    def __init__(
        self,
        model: str,
        *,
        engine: str = "sharded",
        workers: int = 2,
        options: dict[str, Any] | None = None,
        gpus: float | None = None,
    ) -> None:
        raise AssertionError("a plan made an engine")


class ServerEngine:
    """Asks a server."""

    adapts = False

    @staticmethod
    def footprint(options):
        return Footprint(remote=True)

    def __init__(self, model: str, *, base_url: str = "") -> None:
        raise AssertionError("a plan made an engine")


@coevo.hookimpl
def register_engines(engines):
    engines.register("sharded", ShardedEngine)
    engines.register("pool", PoolEngine)
    engines.register("server", ServerEngine)
