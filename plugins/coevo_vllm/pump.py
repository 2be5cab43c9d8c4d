"""The thread that owns vLLM: requests are added while others are being answered, weights change in between.

vLLM batches continuously: whatever is unfinished takes part in the next forward. So the thread does, for ever: what
it was told to do, then one step.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Thread
from typing import Any, TypeVar

from coevo.errors import RunError

T = TypeVar("T")
Job = Callable[[], None]


class Pump:
    """Runs an `LLM` in a thread of its own.

    Attributes:
        llm: vLLM's; to be touched inside the thread only.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        """Starts the thread and makes the LLM in it; raises what that raises."""
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._asked: dict[str, Future[Any]] = {}
        self._numbers = itertools.count()
        self._broken: BaseException | None = None
        self.llm: Any = None
        self._thread = Thread(target=self._run, name="coevo-vllm", daemon=True)
        self._thread.start()
        self.llm = self.do(make)

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Do `work` in the thread, between two steps."""
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                future.set_exception(error)

        self._jobs.put(job)
        return future

    def do(self, work: Callable[[], T]) -> T:
        """Do `work` in the thread and wait for it."""
        return self.submit(work).result()

    def ask(self, asked: Sequence[tuple[Any, Any]]) -> list[Future[Any]]:
        """Add requests, all before the next step.

        Args:
            asked: (prompt, sampling parameters) as vLLM takes them.

        Returns:
            A future of vLLM's output each. A request whose future is cancelled goes on until it is dropped.
        """
        futures: list[Future[Any]] = [Future() for _ in asked]

        def add() -> None:
            for (prompt, parameters), future in zip(asked, futures, strict=True):
                if self._broken is not None:
                    future.set_exception(self._gone())
                    continue
                name = str(next(self._numbers))
                try:
                    self.llm.llm_engine.add_request(name, prompt, parameters)
                except Exception as error:  # noqa: BLE001 - one request that vLLM refuses
                    future.set_exception(error)
                else:
                    self._asked[name] = future

        self._jobs.put(add)
        return futures

    def drop(self, futures: Sequence[Future[Any]]) -> None:
        """Have requests forgotten whose answers nobody waits for."""

        def abort() -> None:
            gone = [name for name, future in self._asked.items() if future in futures]
            for name in gone:
                del self._asked[name]
            if gone and self._broken is None:
                self.llm.llm_engine.abort_request(gone)

        self._jobs.put(abort)

    def close(self, shut: Callable[[Any], None]) -> None:
        """Shut the LLM down in its thread, and end the thread."""
        if self._thread.is_alive():
            self._jobs.put(lambda: shut(self.llm) if self.llm is not None else None)
            self._jobs.put(None)
            self._thread.join()

    def _run(self) -> None:
        while True:
            idle = not self._asked
            try:
                job = self._jobs.get(block=idle)
            except queue.Empty:
                self._step()
                continue
            if job is None:
                return
            job()

    def _step(self) -> None:
        try:
            outputs = self.llm.llm_engine.step()
        except BaseException as error:  # noqa: BLE001 - everybody who waits is told
            self._broken = error
            waiting, self._asked = self._asked, {}
            for future in waiting.values():
                if future.set_running_or_notify_cancel():
                    future.set_exception(self._gone())
            return
        for output in outputs:
            future = self._asked.pop(output.request_id, None) if output.finished else None
            if future is not None and future.set_running_or_notify_cancel():
                future.set_result(output)

    def _gone(self) -> RunError:
        said = " ".join(str(self._broken).split())[:300]
        return RunError(f"vLLM stopped: {type(self._broken).__name__}: {said}")
