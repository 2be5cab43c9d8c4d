"""The engine: a transformers model in this process, its weights served from an fp32 master.

Imports nothing heavy; torch, transformers and numba are imported by the constructor.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib.util
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import Field

from coevo.endpoint import serve
from coevo.engines import adapting
from coevo.engines.adapting import AdaptingEngine
from coevo.errors import MissingExtraError
from coevo.interfaces import Capabilities, Endpoint
from coevo.optional import Footprint
from coevo.records import Completion, Json, Perturbation, Request, Sampling
from coevo_transformers.rolling import Rolling

if TYPE_CHECKING:
    from coevo_transformers.session import Session

T = TypeVar("T")


class TransformersEngine(AdaptingEngine):
    """Any dense text model that transformers loads, on the CPU or one CUDA device, in this process.

    Usage:

        engine = TransformersEngine("smollm2-135m")
        async with engine.lease(Perturbation(seed=1, sigma=1e-3)) as policy:
            completions = await policy.complete(requests)
        engine.apply(update)

    All of the model's work happens in one thread: the event loop stays free, and OpenMP keeps one team of
    threads. Leases queue, and leasing what is served already costs nothing.
    """

    @staticmethod
    def footprint(options: Mapping[str, Any]) -> Footprint:
        """What decides how much memory it needs."""
        return Footprint(
            context=options["context"],
            rows=options["rows"],
            cache_tokens=options["cache_tokens"],
            master=options["master"],
            dtype=options["dtype"],
            device=options["device"],
        )

    def __init__(
        self,
        model: str,
        *,
        dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto",
        device: str = "auto",
        threads: Annotated[int, Field(ge=0, le=1024)] = 0,
        rows: Annotated[int, Field(ge=1)] = 32,
        cache_tokens: Annotated[int, Field(ge=1)] = 65_536,
        attention: Literal["auto", "sdpa", "eager"] = "auto",
        context: Annotated[int, Field(ge=0)] = 0,
        enable_thinking: bool | None = None,
        chat_options: dict[str, Any] | None = None,
        date: datetime.date | None = None,
        scales: dict[str, float] | None = None,
        master: Literal["host", "disk", "device"] = "host",
        weights: Literal["exact", "inplace", "inplace-sum"] = "exact",
        rolling: bool = False,
        canary: bool = True,
    ) -> None:
        """Loads the model and runs the canary.

        Args:
            model: an alias, a folder or a hub id.
            dtype: of the served weights; `auto` is bfloat16 where the hardware computes in it, else float32.
            device: `auto`, `cpu`, `cuda` or `cuda:1`.
            threads: of the CPU; 0 leaves it to torch.
            rows: how many requests are decoded together at most.
            cache_tokens: how many prompt and answer tokens they may have in all: bounds the memory of the
                key/value cache. One request is always let through.
            attention: how transformers computes it; `auto` is sdpa where the model has it.
            context: longest prompt plus answer in tokens; 0 takes the model's own.
            enable_thinking: given to chat templates that know it.
            chat_options: further arguments of the chat template, for every request.
            date: for chat templates that print today's, such as `2026-01-31`; a run keeps that of its start.
            scales: (glob → factor) on sigma and update of the tensors that match; 0 freezes them.
            master: where the fp32 master lies; `device` keeps a copy beside the model besides.
            weights: `exact` serves every member from the master. The others, for comparison only and on the
                CPU only, add noise to the served weights in place and subtract it again, as published scripts
                do: `inplace` also adds each term of an update by itself, `inplace-sum` adds their fp32 sum.
            rolling: requests of all chunks of a member are batched as they come, which keeps batches full where
                episodes differ in length and makes answers depend on their company; without it chunk after chunk
                is answered, the same every time.
            canary: whether to prove at start that the served weights are what generates; in-place weights
                are never proved.

        Raises:
            MissingExtraError: torch or transformers is not installed.
            UserError: the model cannot be used; one line says why.
            CheckFailedError: the canary failed; the message names the tensors.
        """
        _need_packages()
        _let_threads_sleep()
        from coevo_transformers.session import Session, Settings

        settings = Settings(
            model=str(model),
            dtype=dtype,
            device=device,
            threads=threads,
            rows=rows,
            cache_tokens=cache_tokens,
            attention=attention,
            context=context,
            chat_options=adapting.chat_options(chat_options, enable_thinking),
            date=date,
            scales=tuple((scales or {}).items()),
            master=master,
            weights=weights,
            canary=canary,
        )
        self._worker = ThreadPoolExecutor(1, "coevo-transformers")
        try:
            self._session = self._here(lambda: Session(settings))
        except BaseException:
            self._worker.shutdown()
            raise
        self.adapt_by(self._session.weights, self._session.folder, self._here)
        self._rows = rows if rolling else 0
        self.capabilities = Capabilities(
            adapts=True,
            logprobs=True,
            slots=1,
            deterministic=self._session.repeats and not rolling,
            rolling=rolling,
        )

    @asynccontextmanager
    async def lease(self, perturbation: Perturbation | None) -> AsyncGenerator[TransformersPolicy]:
        """Serve a member, or the centre for None, until the context ends; waits for its turn.

        Raises:
            ValueError: an unknown noise family, or a sigma that is not finite in fp32.
        """
        async with self.own_slot():
            session = self._session
            await self.run(lambda: session.weights.serve(perturbation))
            policy = TransformersPolicy(self, session, session.policy_id(perturbation), self._rows)
            try:
                yield policy
            finally:
                await policy.end()

    async def run(self, work: Callable[[], T], stop: Event | None = None) -> T:
        """Do `work` in the engine's thread.

        A cancelled caller waits until the thread is free of its work, which `stop` tells to hurry.
        """
        future = self._worker.submit(work)
        waiting = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if not future.cancel():
                if stop is not None:
                    stop.set()
                await asyncio.wait([waiting])
                if not waiting.cancelled():
                    waiting.exception()  # taken here: that it was told to stop is news to nobody
            raise

    def _here(self, work: Callable[[], T]) -> T:
        return self._worker.submit(work).result()

    def served_digest(self) -> str:
        """The digest over the tensors that generate, read back now."""
        return self._here(self._session.weights.served_digest)

    def count_tokens(self, request: Request) -> int:
        """Tokens of the request's prompt."""
        return len(self._session.prompts(request).ids)

    def describe(self) -> Mapping[str, str]:
        """For the start line: model, device, dtype, threads, where the master is and how large."""
        return self._session.describe()

    def record(self) -> Mapping[str, Json]:
        """For run.json: base folder, selection, and what rollouts depend on besides the weights."""
        return self._session.record()

    def library_chat(self, conversations: Sequence[Sequence[Mapping[str, str]]], sampling: Sampling) -> int:
        """The library's own `generate` on conversations, at what is served now; returns the tokens generated."""
        return self._here(lambda: self._session.library_chat(conversations, sampling))

    def close(self) -> None:
        """End the engine's thread."""
        self._worker.shutdown(wait=True, cancel_futures=True)


class TransformersPolicy:
    """Weights being served, for the length of a lease.

    Attributes:
        id: hash of master digest, perturbation and selection.
    """

    def __init__(
        self,
        engine: TransformersEngine,
        session: Session,
        id: str,  # noqa: A002 - the Protocol's word
        rows: int = 0,
    ) -> None:
        """`rows`: of a rolling batch; 0 answers every call by itself."""
        self.id = id
        self._engine, self._session = engine, session
        self._ended = False
        self._rolling = Rolling(self._answer, rows) if rows else None

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete all, in order; one that does not fit the context says so in its own completion.

        Raises:
            UserError: the chat template refuses a request.
            RuntimeError: the lease has ended.
        """
        if self._ended:
            raise RuntimeError("complete() was called after the policy's lease ended")
        if self._rolling is not None:
            return await self._rolling.complete(requests)
        return await self._answer(list(requests))

    async def _answer(self, asked: list[Request]) -> list[Completion]:
        stop = Event()
        return await self._engine.run(lambda: self._session.completer.complete(asked, stop), stop)

    def endpoint(self) -> AbstractAsyncContextManager[Endpoint]:
        """Serve it on loopback as an OpenAI-compatible API; when the lease ends, requests are refused.

        Requests that come at once are answered one after the other, each in a batch of its own: so an answer depends
        on its request alone.
        """
        return serve(self)

    async def end(self) -> None:
        """The weights may change from here on."""
        self._ended = True
        if self._rolling is not None:
            await self._rolling.end()


def _need_packages() -> None:
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError("engine 'transformers'", package, "transformers")


def _let_threads_sleep() -> None:
    """Makes OpenMP threads sleep while they wait, if torch is not loaded yet.

    They spin otherwise, and coevo scores answers beside generation: where all cores are busy, a spinning thread
    keeps the one it waits for off its core. On two busy cores that made prefill and decoding 3 to 7 times
    slower. A value that the user has set stays.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
