"""The engine: a pool of another engine's, behind the same contract.

Imports nothing heavy; ray is imported by the constructor.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

import coevo
from coevo.errors import UserError
from coevo.records import Completion, Perturbation, Request, SeedsUpdate, Update
from coevo_ray.cluster import Cluster
from coevo_ray.extras import Extras
from coevo_ray.pool import Member, Pool, WorkerDiedError
from coevo_ray.shares import shares
from coevo_ray.worker import Recipe


class RayEngine:
    """A pool of another engine, each in a Ray worker of its own, on one machine or a cluster.

    Usage:

        engine = RayEngine("smollm2-135m", workers=2, options={"threads": 1})
        async with engine.lease(Perturbation(seed=1, sigma=1e-3)) as policy:
            completions = await policy.complete(requests)
        engine.apply(update)

    As many leases as there are workers are served at once. Every worker applies every update by itself, from its
    seeds, and their digests are compared.

    Attributes:
        extras: the optional methods, which are this object's own where the workers' engine has them.
    """

    def __init__(
        self,
        model: str = "",
        *,
        plugins: Sequence[str] = (),
        engine: str = "transformers",
        workers: Annotated[int, Field(ge=0, le=4096)] = 2,
        options: dict[str, Any] | None = None,
        gpus: Annotated[float, Field(ge=0)] | None = None,
        cpus: Annotated[float, Field(gt=0)] | None = None,
        address: str = "",
        restarts: Annotated[int, Field(ge=0)] = 3,
        patience: Annotated[float, Field(gt=0)] = 900.0,
    ) -> None:
        """Starts Ray, and in every worker the engine with its model.

        Args:
            model: as the engine takes it; on a cluster, the same everywhere.
            plugins: files that may define the engine.
            engine: which engine the workers run.
            workers: how many; 0 is as many as there is room for.
            options: of that engine, as `--set ray.options.NAME=VALUE`; its `threads`, where it has them, are the
                worker's CPUs unless they are set.
            gpus: GPUs of a worker, may be a fraction of one; by default 1 where there are GPUs, else 0.
            cpus: CPUs of a worker; by default an equal share.
            address: of a Ray cluster (`auto` or HOST:PORT) that this machine is part of; empty starts a Ray for
                this run, on loopback.
            restarts: how often a worker whose process dies is started again.
            patience: seconds that a worker may take to start.

        Raises:
            MissingExtraError: ray is not installed.
            UserError: engine, options, model, address or resources cannot be had.
            CheckFailedError: the workers come up with different weights.
        """
        given = dict(options or {})
        if engine == "ray":
            raise UserError("ray.engine got 'ray': a pool is no worker; expected the engine that its workers run")
        known = coevo.check_engine(engine, given, model=model, plugins=plugins)
        self._numbers = itertools.count(1)
        self._seats: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None
        self._cluster = Cluster(address)
        try:
            self._shares = shares(self._cluster.nodes(), workers, cpus, gpus)
            if "threads" in known and "threads" not in given:
                given["threads"] = self._shares.threads
            path = os.path.abspath(model) if os.path.exists(model) else model
            recipe = Recipe(engine, given, path, tuple(plugins), os.getcwd())
            self._pool = Pool(self._cluster, recipe, self._shares, restarts, patience)
            self._cluster.watch()
            self.extras = Extras(self._pool, self._cluster, self._shares)
        except BaseException:
            self._cluster.close()
            raise
        inner = self._pool.facts.capabilities
        self._each = inner.slots
        self.capabilities = replace(inner, gradients=False, slots=inner.slots * self._shares.workers)

    @asynccontextmanager
    async def lease(self, perturbation: Perturbation | None) -> AsyncGenerator[RayPolicy]:
        """Serve a member, or the centre for None, on a free worker until the context ends; waits for its turn.

        Raises:
            CheckFailedError: the workers' weights differ since an update.
            Exception: what the worker's engine raises.
        """
        self._pool.check()
        async with self._free():
            member = self._choose(perturbation)
            member.leases += 1
            member.leased = next(self._numbers)
            member.serving, self._pool.last = perturbation, member
            policy = RayPolicy(self._pool, member, next(self._numbers), perturbation)
            try:
                await policy.enter()
                yield policy
            except BaseException:
                policy.abandon()
                raise
            else:
                await policy.leave()
            finally:
                member.leases -= 1

    def _free(self) -> asyncio.Semaphore:
        """One permit a slot. It is of the running loop: what a lease waited on belongs to its loop for ever."""
        loop = asyncio.get_running_loop()
        if self._seats is None or self._seats[0] is not loop:
            self._seats = (loop, asyncio.Semaphore(self.capabilities.slots))
        return self._seats[1]

    def _choose(self, perturbation: Perturbation | None) -> Member:
        """The free worker that served the member last, else its antithetic twin, else the one idle for longest."""

        def unfit(member: Member) -> tuple[bool, bool, int, float]:
            same = member.serving == perturbation
            twin = member.serving and perturbation and member.serving.seed == perturbation.seed
            return (not same, not twin, member.leases, member.leased)

        return min((m for m in self._pool.members if m.leases < self._each), key=unfit)

    def apply(self, update: Update) -> None:
        """Move the weights of every worker.

        Raises:
            ValueError: an update that is not of kind `seeds`: nothing else is sent to workers.
            CheckFailedError: the workers' weights differ afterwards; the message names who does.
        """
        if not isinstance(update, SeedsUpdate):
            raise ValueError(f"this engine applies seeds updates, got a {type(update).__name__}")
        self._pool.apply(update)

    def digest(self) -> str:
        """The `weights_digest` that all workers have."""
        return self._pool.digest

    def export(self, path: Path, dtype: str | None = None) -> None:
        """Let a worker write the centre as a folder that transformers loads."""
        self._pool.ask(self._pool.idle(), "export", Path(path).absolute(), dtype)

    def close(self) -> None:
        """End the workers, and a local Ray with them; a cluster is left alone."""
        self._pool.close()
        self._cluster.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """The optional methods of an engine: this one has those that its workers' engine has."""
        extras: Extras | None = self.__dict__.get("extras")
        if extras is None or name not in extras.names:
            raise AttributeError(f"engine 'ray' has no {name!r}")
        return getattr(extras, name)


class RayPolicy:
    """A lease on a worker, which outlives the worker's process.

    Attributes:
        id: of the weights, as the worker's engine names them.
    """

    def __init__(self, pool: Pool, member: Member, number: int, perturbation: Perturbation | None) -> None:
        self.id = ""
        self._pool, self._member, self._number, self._perturbation = pool, member, number, perturbation
        self._entered: object = None
        self._entering = asyncio.Lock()
        self._ended = False

    async def enter(self) -> None:
        """Let the worker serve the member."""
        await self._under_lease(None)

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete all, in order. Asked again, whole, of the worker's next process if this one dies.

        Raises:
            RunError: the worker died too often.
            RuntimeError: the lease has ended.
            Exception: what the worker's engine raises.
        """
        if self._ended:
            raise RuntimeError("complete() was called after the policy's lease ended")
        asked = list(requests)
        return await self._under_lease(lambda actor: actor.complete.remote(self._number, asked))

    async def _under_lease(self, send: Callable[[Any], Any] | None) -> Any:
        while True:
            seat = self._member.seat
            try:
                async with self._entering:
                    if self._entered is not seat:
                        call = seat.actor.enter.remote(self._number, self._perturbation)
                        self.id = await self._pool.wait(self._member, call)
                        self._entered = seat
                return None if send is None else await self._pool.wait(self._member, send(seat.actor))
            except WorkerDiedError:
                await self._pool.revive_async(self._member, seat)

    async def leave(self) -> None:
        """End the lease; one on a process that died has ended already."""
        self._ended = True
        seat = self._member.seat
        if self._entered is seat:
            with suppress(WorkerDiedError):
                await self._pool.wait(self._member, seat.actor.leave.remote(self._number))

    def abandon(self) -> None:
        """End the lease without waiting: the caller failed or was cancelled."""
        self._ended = True
        seat = self._member.seat
        if self._entered is seat:
            seat.actor.leave.remote(self._number)
