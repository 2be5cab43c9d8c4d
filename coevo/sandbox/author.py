"""The author's process as the run sees it: the problem's own functions are called there and nowhere else."""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from coevo.errors import CoevoError, RunError, UserError
from coevo.machine.places import interpreter
from coevo.sandbox import wire
from coevo.sandbox.connection import environment
from coevo.sandbox.limits import Limits

_CLOSE_SECONDS = 10.0
_LOOK_MILLISECONDS = 1000
_STDERR = 2
_MOST_USES = 64
"""Evaluations by one child that leaves all as it was, as far as can be seen."""


class AuthorError(RunError):
    """The problem's own code cannot go on: it takes too long, or ends its process."""


@dataclass(frozen=True, slots=True)
class Valued:
    """Values of solutions, up to the first that `objective` refused.

    Attributes:
        values: of each.
        status: `ok`, or what the refused one is.
        message: why.
    """

    values: list[float]
    status: str = "ok"
    message: str = ""


@dataclass(slots=True)
class Child:
    """One child of the author's process: `clean` if it has left everything as it was."""

    channel: socket.socket
    pid: int
    uses: int = 0
    clean: bool = True


class Author:
    """One process that has loaded the problem; `session` may be called from many threads.

    Attributes:
        instances: how many the split has, once it is loaded.
        has_bound: whether the problem has a function `bound`.
        noticed: what loading did besides, if it was watched: by function, in words.
    """

    def __init__(
        self,
        file: Path,
        split: str | None,
        *,
        limits: Limits | None = None,
        options: Mapping[str, object] | None = None,
        watch: bool = False,
    ) -> None:
        """Start it. It loads while the run does something else: see `wait`.

        Args:
            file: the problem's `evaluate.py`.
            split: whose instances it is asked about; None for none.
            limits: of which `author_seconds` counts.
            options: keyword arguments of the problem's `instances`.
            watch: whether to look at what loading does besides.
        """
        python = interpreter()
        self.instances, self.has_bound = 0, False
        self.noticed: dict[str, list[str]] = {}
        self._file, self._limits = file, limits or Limits()
        self._doing, self._ready, self._closed = "the import", False, False
        self._failure: CoevoError | None = None
        self._asking = threading.Lock()
        self._idle: list[Child] = []
        self._warned: set[str] = set()
        self._channel, theirs = socket.socketpair()
        command = [python, "-P", "-m", "coevo.sandbox.authoring", str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **environment()},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                # What the author prints is no output of the run.
                stdout=_STDERR if _is_open(_STDERR) else subprocess.DEVNULL,
                # Ctrl-C is for the run, which then closes this.
                start_new_session=True,
            )
        settings = {"problem": str(file.resolve()), "split": split, "limits": asdict(self._limits), "watch": watch}
        try:
            wire.send(self._channel, {**settings, "options": dict(options or {})})
        except OSError:
            return  # `wait` says why

    def __enter__(self) -> Author:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Look whether loading has failed.

        Raises:
            UserError: it has.
        """
        while not self._ready and wire.readable(self._channel, 0):
            self._advance()

    def wait(self) -> None:
        """Wait until the problem is loaded.

        Raises:
            UserError: it cannot be, or takes too long.
        """
        while not self._ready:
            self._advance()

    def _advance(self) -> None:
        try:
            self._hear()
        except CoevoError as error:
            self._failure = error
            raise

    def _hear(self) -> None:
        if self._failure is not None:
            raise self._failure
        message = wire.receive(self._channel)
        if message is None:
            code = self._process.wait()
            raise UserError(self._fault(self._doing, code if code <= 128 else 128 - code))
        header = cast("dict[str, Any]", message[0])
        if header["event"] == "doing":
            self._doing = header["what"]
        elif header["event"] == "failed":
            raise (UserError if header["user"] else RunError)(str(header["message"]))
        else:
            self.instances, self.has_bound, self.noticed = header["instances"], header["bound"], header["noticed"]
            self._ready = True

    def _fault(self, what: str, code: int, place: str = "") -> str:
        """What ended a process in the midst of the author's code."""
        where, limits = f"{what} of {str(self._file)!r}", self._limits
        mend = "mend it, or raise author_seconds in [limits] of problem.toml"
        if code == -signal.SIGPROF:
            return f"{where} takes more than {limits.author_seconds:g} s of CPU time{place}; {mend}"
        if code == -signal.SIGALRM:
            return f"{where} takes more than {limits.author_wall:g} s{place}; {mend}"
        how = f"is ended by {signal.Signals(-code).name}" if code < 0 else f"leaves with exit code {code}"
        return f"{where} {how}{place}; it must return, or raise ValueError for a solution that it refuses"

    def session(self) -> Session:
        """For one evaluation, by a child that finds all as it was after loading."""
        return Session(self)

    def close(self) -> None:
        """End it, whatever it does; a session in another thread raises `RuntimeError`."""
        self._closed = True
        with contextlib.suppress(OSError):  # it may have ended by itself
            self._channel.shutdown(socket.SHUT_RDWR)
        if not self._ready:
            self._process.kill()
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._channel.close()
        with self._asking:
            for child in self._idle:
                child.channel.close()

    def lend(self) -> Child:
        """A child that has changed nothing so far. For `Session`."""
        with self._asking:
            self._alive()
            if self._idle:
                return self._idle.pop()
            data, ends = b"", list[int]()
            with contextlib.suppress(OSError):
                wire.send(self._channel, {"open": True})
                data, ends, *_ = socket.recv_fds(self._channel, wire.NUMBER.size, 1)
            if not ends:
                raise self._gone()
            return Child(socket.socket(fileno=ends[0]), wire.NUMBER.unpack(data)[0])

    def take_back(self, child: Child) -> None:
        """Keep a child for the next evaluation, unless it has changed something. For `Session`."""
        with self._asking:
            if child.clean and child.uses < _MOST_USES and not self._closed:
                child.uses += 1
                self._idle.append(child)
                return
        child.channel.close()

    def end_of(self, pid: int, what: str, now: bool) -> AuthorError | None:
        """Why a child has ended in the midst of `what`; None if it goes on. With `now` it does not. For `Session`."""
        with self._asking:
            self._alive()
            try:
                wire.send(self._channel, {"ended": pid, "now": now})
                reply = wire.receive(self._channel)
            except OSError:
                reply = None
            if reply is None:
                raise self._gone()
        code = cast("int | None", reply[0]["code"])
        if code is None and not now:
            return None
        place = f" for instance {reply[0]['place']}" if what in ("`objective`", "`bound`") else ""
        return AuthorError(self._fault(what, -signal.SIGKILL if code is None else code, place))

    def left(self, what: str, said: str) -> AuthorError:
        """An error for author's code that raised what would end an interpreter."""
        return AuthorError(f"{what} of {str(self._file)!r} raises {said}; raise ValueError to refuse a solution")

    def warned(self, texts: Sequence[str]) -> None:
        """Pass on what the author's code warned of, each text once."""
        for text in texts:
            if text not in self._warned:
                self._warned.add(text)
                print(f"coevo: note: evaluate.py warns: {' '.join(text.split())}", file=sys.stderr)

    def _alive(self) -> None:
        if self._closed:
            raise RuntimeError("the evaluator is closed")

    def _gone(self) -> Exception:
        if self._closed:
            return RuntimeError("the evaluator is closed")
        return RunError(f"the process of {str(self._file)!r} ended (exit code {self._process.poll()})")


class Session:
    """What is asked in one evaluation. Not for several threads at once."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._child: Child | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        if self._child is not None:
            self._author.take_back(self._child)
            self._child = None

    def values(self, first: int, solutions: Sequence[object]) -> Valued:
        """Check and value solutions of the instances from `first` on; from the very first on, nothing was before.

        Raises:
            AuthorError: `objective` takes too long, or ends its process.
            RuntimeError: the evaluator is closed.
        """
        if first == 0:
            self.close()
        clean = self._child is None or self._child.clean
        found = self._ask("`objective`", {"ask": "values", "first": first}, marshal.dumps(list(solutions)))
        assert self._child is not None
        self._child.clean = clean and found["clean"]
        return Valued(found["values"], found["status"], found["message"])

    def bounds(self) -> list[float | str]:
        """The bound of each instance, or what it raised; raises as `values`."""
        return self._ask("`bound`", {"ask": "bounds"})["bounds"]

    def split(self, name: str) -> dict[str, Any]:
        """What `coevo.sandbox.examining.look_at_split` finds; raises as `values`."""
        return self._ask(f"`instances({name!r})`", {"ask": "split", "split": name})

    def work(self, split: str, options: Mapping[str, object]) -> dict[str, Any]:
        """What `coevo.sandbox.work.work_of` finds.

        Raises:
            UserError: as it does; besides as `values`.
        """
        found = self._ask(f"`work` and `instances({split!r})`", {"ask": "work", "split": split, "options": options})
        if "refused" in found:
            raise UserError(found["refused"])
        return found

    def examine(self, solutions: Sequence[object]) -> dict[str, list[str]]:
        """What `coevo.sandbox.examining.examine` finds; raises as `values`."""
        return self._ask("`objective`", {"ask": "examine"}, marshal.dumps(list(solutions)))["found"]

    def _ask(self, what: str, header: Mapping[str, object], payload: bytes = b"") -> dict[str, Any]:
        child = self._child = self._child or self._author.lend()
        # Until it has answered it counts as one that nobody may use again.
        child.clean = False
        try:
            wire.send(child.channel, header, payload)
            while not wire.readable(child.channel, _LOOK_MILLISECONDS):
                # What the author's code has forked may hold the connection open.
                if error := self._author.end_of(child.pid, what, now=False):
                    raise error
            reply = wire.receive(child.channel)
        except OSError:
            reply = None
        if reply is None:
            error = self._author.end_of(child.pid, what, now=True)
            assert error is not None
            raise error
        found = cast("dict[str, Any]", reply[0])
        self._author.warned(found["warned"])
        if "left" in found:
            raise self._author.left(what, found["left"])
        return found


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
