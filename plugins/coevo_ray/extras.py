"""The methods that an engine may have or not: the pool has those of its workers' engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coevo.records import Json, Perturbation, Request
from coevo_ray.cluster import Cluster
from coevo_ray.pool import Pool
from coevo_ray.shares import Shares


class Extras:
    """See `coevo.interfaces.Engine` for what each means.

    Attributes:
        names: which of them there are.
    """

    def __init__(self, pool: Pool, cluster: Cluster, shares: Shares) -> None:
        self.names = {"describe", "record", *pool.facts.methods}
        self._pool, self._cluster, self._shares = pool, cluster, shares

    def moved(self, perturbation: Perturbation) -> float:
        """Share of sampled weights that a member changes, by any worker."""
        return self._pool.ask(self._pool.idle(), "moved", perturbation)

    def reached(self) -> Mapping[str, float]:
        """How much of the last update reached the served weights of the first worker."""
        return self._pool.ask(self._pool.members[0], "reached")

    def count_tokens(self, request: Request) -> int:
        """Tokens of the request's prompt, by any worker."""
        return self._pool.ask(self._pool.idle(), "count_tokens", request)

    def served_digest(self) -> str:
        """What generates in the worker that was leased last."""
        return self._pool.ask(self._pool.last, "served_digest")

    def save_anchor(self, path: Path) -> None:
        """Let a worker write the fp32 master; a worker that is started again begins from there."""
        self._pool.save_anchor(Path(path).absolute())

    def load_anchor(self, path: Path) -> None:
        """Let every worker take its master from an anchor."""
        self._pool.load_anchor(Path(path).absolute())

    def apply_seconds(self) -> float:
        """Wall time of all updates, the slowest worker's each time."""
        return self._pool.apply_seconds

    def describe(self) -> Mapping[str, str]:
        """What one engine says, and how many there are of it."""
        facts, shares = self._pool.facts, self._shares
        gpus = f", {shares.gpus:g} GPU" if shares.gpus else ""
        told = f"{shares.workers} of engine {self._pool.recipe.engine!r}, {shares.cpus:g} CPU{gpus} each"
        pool = {"workers": told, "ray": f"{self._cluster.told}, version {self._cluster.version}"}
        if "master" in facts.describe and shares.workers > 1:
            pool["master"] = f"{facts.describe['master']} in each of {shares.workers} workers"
        return {**facts.describe, **pool}

    def record(self) -> Mapping[str, Json]:
        """What one engine records, and the pool under `ray`."""
        engine, shares = self._pool.recipe.engine, self._shares
        pool = {"engine": engine, "workers": shares.workers, "cpus": shares.cpus, "gpus": shares.gpus}
        return {**self._pool.facts.record, "ray": {**pool, "version": self._cluster.version}}
