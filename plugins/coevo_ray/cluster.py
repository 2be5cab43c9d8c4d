"""The Ray that workers run on: one of our own on the loopback address, or one that is there already.

Ray's own defaults are for a cluster: it listens on the machine's address, prints, and keeps its logs for ever. For
one machine it is told otherwise, mostly through variables that it reads when it is imported or started.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coevo.errors import MissingExtraError, RunError, UserError
from coevo_ray.shares import Node
from coevo_ray.watcher import Watcher

_TOKEN = secrets.token_hex(32)
"""Without it nobody on this machine may use our Ray. One a process: Ray reads it once."""

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # else it prints on standard output that a worker died
}
_LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # its word for "take the loopback address", on every system
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": _TOKEN,
}
_imported: list[str] = []
"""Not empty once it was imported here, with the variables set."""

_started: list[str] = []
"""The folder of the local Ray that this process has started, while it runs: its workers inherit what they need."""

_OBJECT_STORE_BYTES = 128 << 20
"""Requests and answers are small, and no weights go through it."""

_KNOCK_SECONDS = 10.0
_LONGEST_FOLDER = 28
"""Ray's sockets lie 70 characters deeper, and a socket's path has about 100."""


class Cluster:
    """A connection to Ray.

    Attributes:
        told: what it is, for the start line.
        environment: variables that a worker needs and would not inherit.
        keep: whether to leave the logs of a local Ray behind.
    """

    def __init__(self, address: str) -> None:
        """Start or join.

        Args:
            address: of a cluster; empty uses the Ray that this process is connected to, or starts one.

        Raises:
            MissingExtraError: ray is not installed.
            UserError: the cluster cannot be joined.
            RunError: Ray does not start.
        """
        if importlib.util.find_spec("ray") is None:
            raise MissingExtraError("engine 'ray'", "ray", "ray")
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        self.keep = False
        self.environment: Mapping[str, str] = {}
        self._folder: Path | None = None
        self._watcher: Watcher | None = None
        with _variables({**_QUIET, **({} if address else _LOOPBACK)}):
            early = "ray" in sys.modules and not _imported
            self.ray: Any = _import(joins=bool(address))
            self._ours = not self.ray.is_initialized()
            if not self._ours:
                if address:
                    raise UserError(
                        f"ray.address got {address!r}: this process is connected to Ray already; leave it out"
                    )
                self.told = "the Ray of this process"
                self.environment = {} if _started else _needed()
            elif address:
                self._join(address)
            elif early:
                raise UserError(
                    "ray was imported before engine 'ray' was made, and would listen on more than loopback; import it "
                    "later, or connect with ray.init() first"
                )
            else:
                self._start()

    def _join(self, address: str) -> None:
        _knock(address)
        try:
            with _own_signals():
                self.ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _cannot_join(address, str(error).strip().partition("\n")[0]) from None
        self.environment = _needed()
        self.told = f"the cluster at {address}"

    def _start(self) -> None:
        where = tempfile.gettempdir()
        folder = Path(tempfile.mkdtemp(prefix="coevo-ray-", dir=where if len(where) <= _LONGEST_FOLDER else "/tmp"))
        self._folder, self._watcher = folder, Watcher(folder)
        try:
            with _variables(_needed()), _own_signals():
                self.ray.init(
                    address="local",
                    num_cpus=_cores(),
                    include_dashboard=False,
                    log_to_driver=False,
                    configure_logging=False,
                    object_store_memory=_OBJECT_STORE_BYTES,
                    _temp_dir=str(folder),
                )
        except Exception as error:
            self.keep = True
            self.close()
            said = " ".join(str(error).split())[:300]
            raise RunError(f"Ray did not start: {said}; its logs are in {str(folder)!r}") from error
        _started.append(str(folder))
        self.watch()
        addresses = {str(node["NodeManagerAddress"]) for node in self.ray.nodes()}
        if addresses - {"127.0.0.1", "::1"}:
            self.close()
            raise RunError(
                f"this version of Ray, {self.version}, listens on {', '.join(sorted(addresses))} and not on loopback "
                "alone; start a cluster where it may, and give ray.address"
            )
        self.told = "a local Ray"

    @property
    def version(self) -> str:
        """Of the package."""
        return str(self.ray.__version__)

    @property
    def logs(self) -> str:
        """The folder of the logs, where it is known."""
        return str(self._folder / "session_latest" / "logs") if self._folder else ""

    def watch(self) -> None:
        """Note all processes of a local Ray that there are now, so that none outlives this one."""
        if self._watcher is not None:
            self._watcher.watch(os.getpid())

    def nodes(self) -> list[Node]:
        """The machines, with all that they have; what others use of it is not left out."""
        found: list[Mapping[str, Any]] = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        return [Node(float(node.get("CPU", 0.0)), float(node.get("GPU", 0.0))) for node in found]

    def close(self) -> None:
        """End a local Ray; leave one that was there."""
        if self._ours:
            with _own_signals():
                self.ray.shutdown()
            _started.clear()
        if self._watcher is not None:
            self._watcher.dismiss()
        if self._folder is not None and not self.keep:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._ours, self._watcher, self._folder = False, None, None


def _import(joins: bool) -> Any:
    """Ray reads what it is told by the environment when it is imported."""
    if not joins and "ray" not in sys.modules:
        _imported.append("for loopback")
    import ray

    return ray


def _knock(address: str) -> None:
    """Refuse an address where nobody listens at once; Ray would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UserError(
            f"ray.address got {address!r}: expected 'auto' or HOST:PORT of a cluster that this machine is part of"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _cannot_join(address, str(error)) from None


def _cannot_join(address: str, reason: str) -> UserError:
    return UserError(f"ray.address: cannot join the cluster at {address!r}: {reason}")


def _needed() -> dict[str, str]:
    """Variables for workers: they import what this process does, and their OpenMP threads sleep while they wait."""
    mine = {n: v for n, v in os.environ.items() if n.startswith(("COEVO_", "HF_", "OMP_WAIT_POLICY"))}
    return {"OMP_WAIT_POLICY": "PASSIVE", **mine, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def _variables(values: Mapping[str, str]) -> Generator[None]:
    """Set variables of the environment for a while; the token is nothing for the children of later."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _own_signals() -> Generator[None]:
    """Ray puts a handler of its own on SIGTERM; the run's stays."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)
