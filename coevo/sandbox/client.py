"""The sandbox as the run sees it: sources go in, outcomes come out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from coevo.errors import RunError, UserError
from coevo.records import OUTRACED
from coevo.sandbox.claims import UNSENDABLE, judge
from coevo.sandbox.connection import Connection, Reply
from coevo.sandbox.limits import Limits
from coevo.sandbox.racing import SAID, Race

WEAK = "COEVO_WEAK_SANDBOX"
"""The variable that must be 1 where candidates would be the run's own user, with its files and its network."""

_PATIENCE_SECONDS = 60.0
_PAUSES_SECONDS = (0.1, 0.3, 1.0, 3.0, 10.0, 15.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a candidate ended.

    Attributes:
        status: `ok`, `syntax`, `no_entry`, `import`, `exception`, `timeout`, `out_of_memory`,
            `invalid_solution` or `non_finite`; or `outraced`, of a race that was lost.
        value: what it claims, as JSON: one solution per instance. None unless `ok`; not checked yet.
        message: one line for a failure: type, message and line of the source. Empty if `ok`.
        stdout: the last 4 KB that it printed, on either stream.
        cpu_seconds: processor time of all its processes.
        wall_seconds: from its start to the death of its last process.
    """

    status: str
    value: object | None
    message: str
    stdout: str
    cpu_seconds: float
    wall_seconds: float


class Sandbox:
    """Runs Python sources that nobody has read, several at a time.

    ```python
    with Sandbox(Path("evaluate.py"), "train", entry="select_next_node") as sandbox:
        outcome = sandbox.run(source)
    ```

    Start it before the process has threads and memory of any size; `run` may be called from many threads.

    Attributes:
        isolation: what holds on this system. `processes`: a process namespace ends every descendant;
            `measured_trees`: CPU time and memory of all processes together are limited, not of each;
            `files`: only the interpreter, installed packages and system libraries can be read, nothing written;
            `temporary_folder`: the private folder is bounded as a whole; `network`: there is none;
            `shared_memory`: there is none; `user`: a user without rights, another for each that runs;
            `no_namespaces`: namespaces cannot be made inside; `keyring`: it has an empty one; `capabilities`: it has
            none; `system_calls`: they are filtered; `packages`: what is installed can be imported, which fails where
            root's interpreter is in a home that no other user may enter and `files` is False. Where `files` is False a
            candidate can read what its user can.
    """

    def __init__(
        self,
        problem_file: Path,
        split: str,
        *,
        entry: str,
        limits: Limits | None = None,
        workers: int | None = None,
        options: Mapping[str, object] | None = None,
        namespaces: bool = True,
        waiting: Callable[[], None] | None = None,
    ) -> None:
        """Start the zygote and load the problem there.

        Args:
            problem_file: the problem's `evaluate.py`.
            split: whose instances candidates solve.
            entry: the function that a candidate has to define.
            limits: for each candidate.
            workers: candidates at once; None means one per core. One where neither namespaces nor a change
                of user are permitted, because descendants could not be told apart.
            options: keyword arguments of the problem's `instances`.
            namespaces: False leaves them out, as on a system that has none.
            waiting: is called now and then until the problem is loaded, and raises to give up. Without it there is a
                limit of a minute.

        Raises:
            UserError: the problem cannot be loaded, or has no such split; or nothing would keep a candidate from the
                files of the run's user, and `WEAK` does not say that this is wanted.
            RunError: the zygote cannot be started.
        """
        self.limits = limits or Limits()
        workers = max(1, workers or os.cpu_count() or 1)
        self._settings: dict[str, object] = {
            "problem": str(problem_file.resolve()),
            "split": split,
            "entry": entry,
            "limits": asdict(self.limits),
            "workers": workers,
            "options": dict(options or {}),
            "namespaces": namespaces,
        }
        self._changing = threading.Lock()
        self._closed = False
        self._zygote = Connection(self._settings, waiting)
        self.isolation: Mapping[str, bool] = MappingProxyType(self._zygote.isolation)
        if not (self.isolation["files"] or self.isolation["user"]) and os.environ.get(WEAK) != "1":
            self._zygote.close()
            raise UserError(
                "this system permits neither namespaces nor another user, so a program that a model wrote could read "
                "and change the files of this user and reach the network; run coevo in a container as root, or set "
                f"{WEAK}=1 if nothing here is worth protecting"
            )
        apart = self.isolation["processes"] or self.isolation["user"]
        self.workers = workers if apart else 1
        self._slots = threading.Semaphore(self.workers)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the zygote and whatever runs; a `run` in another thread raises `RuntimeError`."""
        with self._changing:
            if not self._closed:
                self._closed = True
                self._zygote.close()

    def run(self, source: str, race: Race | None = None, *, watch: bool = False) -> Outcome:
        """Run one candidate and wait for its end, or until `race` is lost.

        With `watch` it is an `exception` if `solve` changes an instance; the message is `CHANGES` and the number of the
        instance.

        A zygote that dies meanwhile is started again, once; then the candidate is to blame. Where the system has no
        process to give at the moment, it is asked again for about half a minute.

        Raises:
            RunError: the sandbox itself failed.
            UserError: the problem's `solve` gives the candidate what cannot go to another process.
            RuntimeError: it is closed.
        """
        data = source.encode(errors="surrogatepass")
        with self._slots:
            for pause in (*_PAUSES_SECONDS, None):
                reply = self._judged(data, race, watch)
                if reply is None:
                    return Outcome(
                        status="exception",
                        value=None,
                        message="the sandbox died twice while this ran",
                        stdout="",
                        cpu_seconds=0.0,
                        wall_seconds=0.0,
                    )
                if "broken" not in reply[0]:
                    return self._outcome(reply, race)
                if pause is None:
                    raise RunError(f"the sandbox could not confine a candidate: {reply[0]['broken']}")
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _judged(self, data: bytes, race: Race | None, watch: bool) -> Reply | None:
        from coevo.sandbox import vetting  # it loads numpy, which whoever runs no candidate shall not pay for

        seconds, stages = self.limits.wall + _PATIENCE_SECONDS, race.stages if race is not None else ()
        how = {"vetted": vetting.vetted(data) is not None, "stages": list(stages), "watch": watch}
        for _ in range(2):
            if race is not None:
                race.begin()
            reply = self._alive().judge(data, how, seconds, race.look if race is not None else None)
            if reply is not None:
                return reply
        return None

    def _alive(self) -> Connection:
        with self._changing:
            if self._closed:
                raise RuntimeError("the sandbox is closed")
            if self._zygote.dead:
                self._zygote.close()
                self._zygote = Connection(self._settings)
            return self._zygote

    def _outcome(self, reply: Reply, race: Race | None) -> Outcome:
        header, payload = reply
        claim, output = payload[: header["result"]], payload[header["result"] :].decode(errors="replace")
        if race is not None and race.lost:
            # Whatever it did after that: a fast machine stops it earlier than a slow one.
            status, value, message = OUTRACED, None, SAID
        else:
            status, value, message = judge(header, claim, self.limits, staged=race is not None)
        if status == UNSENDABLE:
            raise UserError(
                f"problem {str(self._settings['problem'])!r}: {message}; a candidate is in another process, so give it "
                "numbers, text, numpy arrays, and lists, tuples, sets or dictionaries of them"
            )
        return Outcome(
            status=status,
            value=value,
            message=message,
            stdout=output,
            cpu_seconds=float(header["cpu_seconds"]),
            wall_seconds=float(header["wall_seconds"]),
        )
