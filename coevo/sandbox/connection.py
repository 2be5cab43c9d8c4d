"""The run's end of one zygote: starts it, sends it sources, hands replies to the threads that wait for them."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from coevo.errors import RunError, UserError
from coevo.machine.places import interpreter
from coevo.sandbox import processes, wire

_START_SECONDS = 60.0
_CLOSE_SECONDS = 10.0
_LOOK_MILLISECONDS = 200
_SINGLE_THREAD = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"], "1")

Reply: TypeAlias = tuple[dict[str, Any], bytes]


def environment() -> dict[str, str]:
    """Variables under which a problem is loaded, in the sandbox and in the author's process alike."""
    # The last entry is for a run that found coevo in its working folder.
    path = [*filter(os.path.isabs, sys.path), str(Path(__file__).resolve().parents[2])]
    return {"LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0", **_SINGLE_THREAD}


class Connection:
    """One zygote process and the thread that reads its replies.

    Attributes:
        isolation: what the zygote found to be permitted.
    """

    def __init__(self, settings: Mapping[str, object], waiting: Callable[[], None] | None = None) -> None:
        """Start a zygote with `settings` and wait until it is ready.

        Args:
            settings: for the zygote.
            waiting: is called now and then meanwhile, and raises to give up; without it there is a limit of time.

        Raises:
            UserError: it cannot load the problem, or this user may not start Python.
            RunError: it ended, or could not say why it did not start.
        """
        python = interpreter()
        self._folder = tempfile.mkdtemp(prefix="coevo-")
        # Candidates that run as another user have to pass through.
        os.chmod(self._folder, 0o711)
        ours, theirs = socket.socketpair()
        self._channel = ours
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [python, "-P", "-m", "coevo.sandbox.zygote", str(theirs.fileno()), str(os.getpid())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=environment(),
                cwd="/",
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                # Ctrl-C is for the run, which then closes the sandbox.
                start_new_session=True,
            )
        self._writing = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[Reply | None]] = {}
        self._numbers = itertools.count(1)
        self._dead = False
        self._reader: threading.Thread | None = None
        self.isolation = self._await_ready({**settings, "folder": self._folder}, waiting)
        self._reader = threading.Thread(target=self._read, name="coevo-sandbox", daemon=True)
        self._reader.start()

    def _await_ready(self, settings: Mapping[str, object], waiting: Callable[[], None] | None) -> dict[str, bool]:
        self._channel.settimeout(_START_SECONDS)
        try:
            wire.send(self._channel, settings)
            while waiting is not None and not wire.readable(self._channel, _LOOK_MILLISECONDS):
                waiting()
            message = wire.receive(self._channel)
        except OSError:
            message = None
        except BaseException:
            self.kill()
            self.close()
            raise
        if message is None:
            said, waited = self._last_words(), self._process.poll() is None
            self.close()
            file = settings["problem"]
            if waited:
                raise UserError(f"problem {str(file)!r} did not load within {_START_SECONDS:g} s; does it end?")
            raise RunError(f"the sandbox did not start with problem {str(file)!r}: {said}")
        self._channel.settimeout(None)
        header = message[0]
        if header["event"] == "failed":
            self.close()
            kind = UserError if header["user"] else RunError
            raise kind(str(header["message"]))
        return cast("dict[str, bool]", header["isolation"])

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.poll()}"

    def _read(self) -> None:
        # A message without a number is a zygote's last: it tells what went wrong.
        with contextlib.suppress(OSError, ValueError):
            while (message := wire.receive(self._channel)) is not None and "id" in message[0]:
                number = int(str(message[0]["id"]))
                replies = self._waiting.get(number) if "stage" in message[0] else self._waiting.pop(number, None)
                if replies is not None:
                    replies.put(cast("Reply", message))
        with self._writing:
            self._dead = True
            waiting, self._waiting = self._waiting, {}
        for replies in waiting.values():
            replies.put(None)

    @property
    def dead(self) -> bool:
        """Whether the other end has closed."""
        return self._dead

    def judge(
        self,
        source: bytes,
        how: Mapping[str, object],
        seconds: float,
        look: Callable[[bytes], bool] | None = None,
    ) -> Reply | None:
        """Run one candidate; None if the zygote died, or has to die because it does not answer.

        Args:
            source: of the candidate.
            how: `vetted`, whether it may run in the process of `solve`; `stages`, after how many instances it sends
                ahead what it has; `watch`, whether it is a failure if `solve` changes an instance.
            seconds: to wait for its end.
            look: is given that, as lines, and returns True where the candidate shall be stopped.
        """
        replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        with self._writing:
            if self._dead:
                return None
            number = next(self._numbers)
            self._waiting[number] = replies
            try:
                wire.send(self._channel, {**how, "id": number}, source)
            except OSError:
                return None
        end = time.monotonic() + seconds
        while True:
            try:
                reply = replies.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.kill()
                return None
            if reply is None or "stage" not in reply[0]:
                return reply
            try:
                stop = look is not None and look(reply[1])
            except BaseException:
                self._stop(number)
                raise
            if stop:
                self._stop(number)

    def _stop(self, number: int) -> None:
        """End a candidate. It may have ended by itself: then nobody is meant any more."""
        with self._writing, contextlib.suppress(OSError):
            wire.send(self._channel, {"id": number, "stop": True})

    def kill(self) -> None:
        """End it as it is; the guardian's process group holds both."""
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End it and wait until it has ended. What is running is killed."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()
        self._channel.close()
        self._log.close()
        with contextlib.suppress(OSError):
            processes.remove(self._folder)
