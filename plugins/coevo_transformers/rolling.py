"""Micro-batches of whatever is waiting: episodes of different lengths keep the batch full.

The requests of one lease, from any number of callers, are put together as they come. While a batch is being answered
the next one gathers; nobody waits for an episode that has more steps to go, only for the batch at hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from coevo.records import Completion, Request

GRACE = 0.005
"""Seconds that a batch which is not full waits for more."""

Answer = Callable[[list[Request]], Awaitable[list[Completion]]]


class Rolling:
    """Gathers requests into batches of at most `rows`; for one event loop and one lease."""

    def __init__(self, answer: Answer, rows: int) -> None:
        self._answer, self._rows = answer, rows
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._running: asyncio.Task[None] | None = None

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete all, in order, in company of whatever else is waiting.

        Raises:
            Exception: what answering the batch raised; everybody in it is told.
        """
        loop = asyncio.get_running_loop()
        mine: list[asyncio.Future[Completion]] = [loop.create_future() for _ in requests]
        self._waiting += zip(requests, mine, strict=True)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        try:
            return list(await asyncio.gather(*mine))
        except asyncio.CancelledError:
            self._drop(mine)
            raise

    def _drop(self, mine: Sequence[asyncio.Future[Completion]]) -> None:
        """Forget requests that nobody waits for; the batch at hand ends when no other needs it."""
        self._waiting = [(request, future) for request, future in self._waiting if future not in mine]

    async def _run(self) -> None:
        try:
            while True:
                # Whoever was told his answer a moment ago is about to ask again, and a small batch takes as long.
                await asyncio.sleep(GRACE if len(self._waiting) < self._rows else 0)
                self._waiting = [(request, future) for request, future in self._waiting if not future.done()]
                if not self._waiting:
                    return
                batch, self._waiting = self._waiting[: self._rows], self._waiting[self._rows :]
                await self._answer_all(batch)
        finally:
            self._running = None

    async def _answer_all(self, batch: Sequence[tuple[Request, asyncio.Future[Completion]]]) -> None:
        try:
            answers = await self._answer([request for request, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error) if isinstance(error, Exception) else future.cancel()
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    async def end(self) -> None:
        """Stop what is still being answered: the weights are about to change."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
