"""Workers that hold the same weights: asked, compared, and started again when their process dies.

A worker's process that ends is no failure of the run. It is started again, brought from the base or the newest
anchor to the pool's weights by the updates that came after, and must prove their digest before it works again.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coevo.errors import CheckFailedError, RunError
from coevo.records import Perturbation, SeedsUpdate
from coevo_ray.answers import unpack
from coevo_ray.cluster import Cluster
from coevo_ray.shares import Shares
from coevo_ray.worker import Facts, Recipe, Worker

_LOOK_SECONDS = 0.2
_FAREWELL_SECONDS = 10.0


class WorkerDiedError(Exception):
    """The worker's process is gone, or cannot be reached any more."""


class _StoppedError(Exception):
    """Nobody waits for the restart any more."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A worker's process: it changes as a whole, when another takes the worker's place."""

    incarnation: int
    actor: Any
    facts: Facts


@dataclass(slots=True)
class Member:
    """A worker of the pool.

    Attributes:
        index: from 0.
        seat: its process.
        deaths: how many processes it has lost.
        leases: that it serves now.
        serving, leased: whom it served last, and when.
    """

    index: int
    seat: Seat
    deaths: int = 0
    leases: int = 0
    serving: Perturbation | None = None
    leased: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __str__(self) -> str:
        return f"worker {self.index} of engine 'ray'"


class Pool:
    """All workers, and where their weights are.

    Attributes:
        members: the workers.
        last: the one that was leased last.
        recipe: of their engine.
        digest: of their weights.
        apply_seconds: wall time of all updates so far.
    """

    def __init__(self, cluster: Cluster, recipe: Recipe, shares: Shares, restarts: int, patience: float) -> None:
        """Start the workers.

        Args:
            cluster: where.
            recipe: of their engine.
            shares: how many, and what each may use.
            restarts: how often a worker may be started again.
            patience: seconds that it may take to start, or to apply what it has missed.

        Raises:
            CoevoError: what the engine refuses, or a worker that does not come up.
            CheckFailedError: the workers' engines have different weights.
        """
        self.apply_seconds = 0.0
        self._cluster, self.recipe, self._restarts, self._patience = cluster, recipe, restarts, patience
        self._ray = cluster.ray
        self._class = self._ray.remote(Worker).options(
            num_cpus=shares.cpus,
            num_gpus=shares.gpus,
            max_restarts=0,  # a new process must be brought up to date first, which is done here
            **({"runtime_env": {"env_vars": dict(cluster.environment)}} if cluster.environment else {}),
        )
        errors = self._ray.exceptions
        self._gone = (
            errors.RayActorError, errors.NodeDiedError, errors.ObjectLostError, errors.OutOfMemoryError,
            errors.WorkerCrashedError,
        )  # fmt: skip
        self._anchor: Path | None = None
        self._since: list[SeedsUpdate] = []
        self._differ = ""
        self.members: list[Member] = []
        actors = [self._class.remote() for _ in range(shares.workers)]
        try:
            # All start at once; one that dies of it is no member yet, so it is not started again.
            calls = [actor.start.remote(recipe) for actor in actors]
            for index, (actor, call) in enumerate(zip(actors, calls, strict=True)):
                self.members.append(Member(index, Seat(0, actor, self._first(index, call))))
            self.last = self.members[0]
            self.digest = self._agreed([member.seat.facts.digest for member in self.members], "start with")
        except BaseException:
            for actor in actors:
                self._ray.kill(actor)
            raise

    def _first(self, index: int, call: Any) -> Facts:
        try:
            return self._get(call, f"worker {index} of engine 'ray'", self._patience)
        except WorkerDiedError as error:
            self._cluster.keep = True
            raise RunError(
                f"worker {index} of engine 'ray' died while it started its engine {self.recipe.engine!r}; "
                f"see its log in {self._cluster.logs or 'the logs of Ray'!r}"
            ) from error

    @property
    def facts(self) -> Facts:
        """What the workers have in common."""
        return self.members[0].seat.facts

    def idle(self) -> Member:
        """A worker that has the least to do."""
        return min(self.members, key=lambda member: member.leases)

    def check(self) -> None:
        """Refuse work when the workers hold different weights.

        Raises:
            CheckFailedError: which differ.
        """
        if self._differ:
            raise CheckFailedError(self._differ)

    # Asking

    def ask(self, member: Member, method: str, *arguments: Any) -> Any:
        """Call a method of the worker's engine, and wait."""
        return self._asked(member, lambda actor: actor.call.remote(method, *arguments))

    def _asked(self, member: Member, send: Callable[[Any], Any]) -> Any:
        while True:
            seat = member.seat
            try:
                return self._get(send(seat.actor), str(member))
            except WorkerDiedError:
                self.revive(member, seat)

    async def wait(self, member: Member, call: Any) -> Any:
        """The answer to a call, without blocking; a cancelled caller cancels the call.

        Raises:
            WorkerDiedError: it will not be answered.
        """
        try:
            return unpack(await call, str(member))
        except asyncio.CancelledError:
            self._ray.cancel(call)
            raise
        except self._gone as error:
            raise WorkerDiedError(str(error)) from error

    def _get(self, call: Any, who: str, patience: float | None = None, stop: threading.Event | None = None) -> Any:
        deadline = None if patience is None else time.monotonic() + patience
        while stop is not None or deadline is not None:
            if stop is not None and stop.is_set():
                raise _StoppedError
            if deadline is not None and time.monotonic() > deadline:
                raise RunError(
                    f"{who} was not ready within ray.patience={patience:g} seconds; others may use the CPUs or GPUs "
                    "that it waits for; if it is only slow, give it more with --set ray.patience=…"
                )
            if self._ray.wait([call], timeout=_LOOK_SECONDS)[0]:
                break
        try:
            return unpack(self._ray.get(call), who)
        except self._gone as error:
            raise WorkerDiedError(str(error)) from error

    # Weights

    def apply(self, update: SeedsUpdate) -> None:
        """Let every worker apply an update by itself, and compare the digests.

        Raises:
            CheckFailedError: the workers' weights differ; the message names who does.
            CoevoError: what the engine says.
        """
        self.check()
        started = time.monotonic()
        self.digest = self._changed("apply", update)
        self._since.append(update)
        self.apply_seconds += time.monotonic() - started

    def load_anchor(self, path: Path) -> None:
        """Let every worker load an anchor; a damaged one leaves the weights where they are."""
        digest = self._changed("load_anchor", path)
        if digest != self.digest:
            self.digest, self._anchor, self._since = digest, path, []

    def save_anchor(self, path: Path) -> None:
        """Let one worker write an anchor, from which a restarted one goes on from here.

        Raises:
            RunError: it is not there afterwards.
        """
        self.ask(self.members[0], "save_anchor", path)
        if not path.exists():
            raise RunError(
                f"worker 0 on {self.facts.host} wrote an anchor that is not at {str(path)!r} here; keep runs in a "
                "folder that all machines of the cluster share"
            )
        self._anchor, self._since = path, []

    def _changed(self, method: str, *arguments: Any) -> str:
        """Change the weights of all workers; the digest that they agree on.

        A worker that dies of it is started again with the weights of before, and asked again.
        """
        digests: dict[int, str] = {}
        failure: Exception | None = None
        waiting = list(self.members)
        while waiting:
            calls = [(member, member.seat) for member in waiting]
            sent = [seat.actor.change.remote(method, *arguments) for _, seat in calls]
            waiting = list[Member]()
            for (member, seat), call in zip(calls, sent, strict=True):
                member.serving = None
                try:
                    digests[member.index] = self._get(call, str(member))
                except WorkerDiedError:
                    self.revive(member, seat)
                    waiting.append(member)
                except Exception as error:  # noqa: BLE001 - raised below, when all have answered
                    failure = failure or error
        if failure is not None:
            if set(digests.values()) - {self.digest}:
                self._differ = f"an update failed in some workers of engine 'ray' and not in others: {failure}"
            raise failure
        return self._agreed([digests[member.index] for member in self.members], f"{method.split('_')[0]} to")

    def _agreed(self, digests: Sequence[str], what: str) -> str:
        common = Counter(digests).most_common(1)[0][0]
        if odd := [index for index, digest in enumerate(digests) if digest != common]:
            named = ", ".join(f"worker {i} on {self.members[i].seat.facts.host} {digests[i][:16]}" for i in odd)
            self._differ = (
                f"the workers of engine 'ray' {what} different weights: {named}, the other {len(digests) - len(odd)} "
                f"{common[:16]}; nothing of it was committed"
            )
            raise CheckFailedError(self._differ)
        return common

    # Restarts

    async def revive_async(self, member: Member, seat: Seat) -> None:
        """`revive` in a thread; a cancelled caller does not wait for it."""
        stop = threading.Event()
        try:
            await asyncio.to_thread(self.revive, member, seat, stop)
        except asyncio.CancelledError:
            stop.set()
            raise

    def revive(self, member: Member, seat: Seat, stop: threading.Event | None = None) -> None:
        """Give a worker whose process died another one, with the pool's weights.

        Args:
            member: the worker.
            seat: the process that died; nothing is done if another has taken its place already.
            stop: set when nobody waits any more.

        Raises:
            RunError: it died too often.
            CheckFailedError: its weights are not the pool's.
        """
        with member.lock:
            while member.seat is seat:
                member.deaths += 1
                self._kill(seat.actor)
                if member.deaths > self._restarts:
                    self._cluster.keep = True
                    log = seat.facts.log or self._cluster.logs or "the logs of Ray"
                    raise RunError(
                        f"{member} died {member.deaths} times, and ray.restarts={self._restarts} allows "
                        f"{self._restarts} restarts; its log is {log!r} on {seat.facts.host}"
                    )
                print(
                    f"coevo: note: {member} (process {seat.facts.pid} on {seat.facts.host}) died and is started "
                    f"again, {member.deaths} of at most {self._restarts} times",
                    file=sys.stderr,
                )
                actor = self._class.remote()
                try:
                    facts = self._brought_up(member, actor, stop)
                except WorkerDiedError:
                    self._kill(actor)
                except BaseException:
                    self._kill(actor)
                    raise
                else:
                    member.serving = None
                    member.seat = Seat(seat.incarnation + 1, actor, facts)

    def _brought_up(self, member: Member, actor: Any, stop: threading.Event | None) -> Facts:
        """Start a worker's engine and take it to the pool's weights."""

        def get(call: Any) -> Any:
            return self._get(call, str(member), self._patience, stop)

        facts: Facts = get(actor.start.remote(self.recipe))
        digest = facts.digest
        if self._anchor is not None:
            digest = get(actor.change.remote("load_anchor", self._anchor))
        for update in self._since:
            digest = get(actor.change.remote("apply", update))
        if digest != self.digest:
            raise CheckFailedError(
                f"{member} was started again and comes to other weights, {digest[:16]}, than the pool has, "
                f"{self.digest[:16]}{f', from the anchor {str(self._anchor)!r}' if self._anchor else ''}"
            )
        return facts

    def _kill(self, actor: Any) -> None:
        """Make sure that it is gone: one that could not be reached may still be there."""
        self._ray.kill(actor)

    def close(self) -> None:
        """Let the engines close, then end the processes."""
        actors = [member.seat.actor for member in self.members]
        calls = [actor.call.remote("close") for actor in actors]
        if calls:
            self._ray.wait(calls, num_returns=len(calls), timeout=_FAREWELL_SECONDS)
        for actor in actors:
            self._kill(actor)
        self.members = []
