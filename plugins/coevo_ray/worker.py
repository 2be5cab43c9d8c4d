"""What runs in a worker's process: an engine of another plugin, and the leases that the pool holds on it.

Nothing here imports ray: Ray calls the methods, on one event loop, as many at once as the pool asks.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coevo
from coevo.interfaces import Capabilities, Engine, Policy
from coevo.records import Completion, Json, Perturbation, Request
from coevo_ray.answers import Answer, answered

OPTIONAL = (
    "apply_seconds", "count_tokens", "describe", "load_anchor", "moved", "reached", "record", "save_anchor",
    "served_digest",
)  # fmt: skip
"""Methods that an engine may have; the pool has those of its workers' engine."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make the engine: what `coevo.make_engine` takes, and the folder in which relative paths are meant."""

    engine: str
    options: Mapping[str, Json]
    model: str
    plugins: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a worker says of itself once its engine is there.

    Attributes:
        capabilities: of the engine.
        digest: of its weights.
        methods: which of `OPTIONAL` it has.
        describe, record: what it gives for the start line and run.json.
        pid, host: its process.
        log: where its standard error goes.
    """

    capabilities: Capabilities
    digest: str
    methods: frozenset[str]
    describe: Mapping[str, str]
    record: Mapping[str, Json]
    pid: int
    host: str
    log: str


class Worker:
    """One engine in a process of its own."""

    def __init__(self) -> None:
        self._made: Engine | None = None
        self._leases: dict[int, tuple[AbstractAsyncContextManager[Policy], Policy]] = {}

    async def start(self, recipe: Recipe) -> Answer:
        """Make the engine; gives `Facts`."""
        return await answered(asyncio.to_thread(self._start, recipe))

    async def call(self, method: str, *arguments: Any) -> Answer:
        """Call a method of the engine."""
        return await answered(asyncio.to_thread(self._call, method, arguments))

    async def change(self, method: str, *arguments: Any) -> Answer:
        """Call a method that changes the weights; gives their digest."""
        return await answered(asyncio.to_thread(self._change, method, arguments))

    async def enter(self, lease: int, perturbation: Perturbation | None) -> Answer:
        """Begin a lease; gives the policy's id."""
        return await answered(self._enter(lease, perturbation))

    async def complete(self, lease: int, requests: Sequence[Request]) -> Answer:
        """Complete requests under a lease."""
        return await answered(self._complete(lease, requests))

    async def leave(self, lease: int) -> Answer:
        """End a lease."""
        return await answered(self._leave(lease))

    def _start(self, recipe: Recipe) -> Facts:
        if os.path.isdir(recipe.folder):  # on another machine it need not be there
            os.chdir(recipe.folder)
        engine = coevo.make_engine(recipe.engine, recipe.options, model=recipe.model, plugins=recipe.plugins)
        self._made = engine
        methods = frozenset(name for name in OPTIONAL if hasattr(engine, name))
        return Facts(
            capabilities=engine.capabilities,
            digest=engine.digest(),
            methods=methods,
            describe=dict(self._call("describe", ())) if "describe" in methods else {},
            record=dict(self._call("record", ())) if "record" in methods else {},
            pid=os.getpid(),
            host=socket.gethostname(),
            log=_log(),
        )

    @property
    def _engine(self) -> Engine:
        if self._made is None:
            raise RuntimeError("the worker has no engine yet")
        return self._made

    def _call(self, method: str, arguments: Sequence[Any]) -> Any:
        if method == "close" and not hasattr(self._engine, "close"):
            return None
        return getattr(self._engine, method)(*arguments)

    def _change(self, method: str, arguments: Sequence[Any]) -> str:
        self._call(method, arguments)
        return self._engine.digest()

    async def _enter(self, lease: int, perturbation: Perturbation | None) -> str:
        context = self._engine.lease(perturbation)
        policy = await context.__aenter__()
        self._leases[lease] = (context, policy)
        return policy.id

    async def _complete(self, lease: int, requests: Sequence[Request]) -> list[Completion]:
        return await self._leases[lease][1].complete(requests)

    async def _leave(self, lease: int) -> None:
        context, _ = self._leases.pop(lease)
        await context.__aexit__(None, None, None)


def _log() -> str:
    """The file that Ray lets the standard error go to, where the system tells."""
    path = os.path.realpath("/dev/fd/2")
    return path if Path(path).is_file() else ""
