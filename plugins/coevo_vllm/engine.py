"""The engine: vLLM in this process, its weights served from an fp32 master that its workers share.

Imports nothing heavy; torch and vllm are imported by the constructor.
"""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from coevo.engines import adapting
from coevo.engines.adapting import AdaptingEngine
from coevo.host.registry import Option
from coevo.interfaces import Capabilities, Endpoint
from coevo.optional import Footprint
from coevo.records import Completion, Json, Perturbation, Request, Sampling
from coevo_vllm.arguments import arguments

if TYPE_CHECKING:
    from coevo_vllm.session import Session


class VllmEngine(AdaptingEngine):
    """Any dense text model that vLLM runs, on CUDA devices or on the CPU.

    Usage:

        engine = VllmEngine("smollm2-135m")
        async with engine.lease(Perturbation(seed=1, sigma=1e-3)) as policy:
            completions = await policy.complete(requests)
        engine.apply(update)

    vLLM lives in one thread; requests may be asked at any time during a lease and are batched continuously.
    Leases queue, and leasing what is served already costs nothing.
    """

    option_tables: ClassVar[Mapping[str, Callable[[], list[Option]]]] = {"options": arguments}

    @staticmethod
    def footprint(options: Mapping[str, Any]) -> Footprint:
        """What decides how much memory it needs."""
        return Footprint(
            shards=options["tensor_parallel"],
            cuts=True,
            context=options["context"],
            rows=options["rows"],
            memory=options["memory"],
            cache_gb=options["cache_gb"],
            master=options["master"],
            dtype=options["dtype"],
        )

    def __init__(
        self,
        model: str,
        *,
        dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto",
        tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1,
        context: Annotated[int, Field(ge=0)] = 0,
        rows: Annotated[int, Field(ge=1)] = 256,
        memory: Annotated[float, Field(gt=0.0, le=1.0)] = 0.85,
        cache_gb: Annotated[float, Field(ge=1.0)] = 2.0,
        eager: bool | None = None,
        rolling: bool = True,
        noise: Literal["auto", "host", "device"] = "auto",
        enable_thinking: bool | None = None,
        chat_options: dict[str, Any] | None = None,
        date: datetime.date | None = None,
        scales: dict[str, float] | None = None,
        master: Literal["host", "disk"] = "host",
        canary: bool = True,
        options: dict[str, Any] | None = None,
    ) -> None:
        """Loads the model and runs the canary.

        Args:
            model: an alias, a folder or a hub id.
            dtype: of the served weights; `auto` is what vLLM takes for the checkpoint.
            tensor_parallel: devices, or on the CPU groups of cores, that share the model.
            context: longest prompt plus answer in tokens; 0 takes the model's own, on the CPU at most 8192.
            rows: how many requests are decoded together at most.
            memory: share of each CUDA device that vLLM may use.
            cache_gb: key/value cache on the CPU, in GB.
            eager: without compiled graphs; None is so on the CPU only.
            rolling: requests of all chunks of a member are batched continuously, which keeps the engine busy and
                makes answers depend on their company; without it chunk after chunk is answered, the same every time
                where vLLM repeats itself.
            noise: where members are made: on the `host`, on the `device` while the master is streamed to it, or
                `auto`, the faster one by a measurement at start.
            enable_thinking: given to chat templates that know it.
            chat_options: further arguments of the chat template, for every request.
            date: for chat templates that print today's, such as `2026-01-31`; a run keeps that of its start.
            scales: (glob → factor) on sigma and update of the tensors that match; 0 freezes them.
            master: where the fp32 master lies: in memory that the workers share, or in a file.
            canary: whether to prove at start that the served weights are what generates.
            options: further arguments of vLLM's `LLM`, as `--set vllm.options.NAME=VALUE`.

        Raises:
            MissingExtraError: vLLM is not installed.
            UserError: the model cannot be used; one line says why.
            CheckFailedError: the canary failed; the message names the tensors.
        """
        from coevo_vllm.starting import Settings, need_package, prepare

        need_package()
        prepare()
        from coevo_vllm.session import Session

        self._session = Session(
            Settings(
                model=str(model),
                dtype=dtype,
                tensor_parallel=tensor_parallel,
                context=context,
                rows=rows,
                memory=memory,
                cache_gb=cache_gb,
                eager=eager,
                rolling=rolling,
                noise=noise,
                chat_options=adapting.chat_options(chat_options, enable_thinking),
                date=date,
                scales=tuple((scales or {}).items()),
                master=master,
                canary=canary,
                options=options or {},
            )
        )
        self.adapt_by(self._session.weights, self._session.folder)
        repeats = self._session.canary.repeats if self._session.canary else False
        self.capabilities = Capabilities(
            adapts=True, logprobs=True, slots=1, deterministic=repeats and not rolling, rolling=rolling
        )

    @asynccontextmanager
    async def lease(self, perturbation: Perturbation | None) -> AsyncGenerator[VllmPolicy]:
        """Serve a member, or the centre for None, until the context ends; waits for its turn.

        Raises:
            ValueError: an unknown noise family, or a sigma that is not finite in fp32.
        """
        async with self.own_slot():
            session = self._session
            await asyncio.to_thread(session.weights.serve, perturbation)
            name = session.weights.policy_id(perturbation)
            # What is found in the cache is rounded otherwise than what is computed: where a chunk must get the same
            # answers again, it begins with an empty one.
            policy = VllmPolicy(session, name, name if self.capabilities.rolling else f"{name} {os.urandom(8).hex()}")
            try:
                yield policy
            finally:
                policy.end()

    def served_digest(self) -> str:
        """The digest over the tensors that generate, read back now.

        Raises:
            UserError: some of them are packed and cannot be read, which depends on the processor and the format; or
                there was no canary to find out.
        """
        return self._session.weights.served_digest()

    def count_tokens(self, request: Request) -> int:
        """Tokens of the request's prompt."""
        return len(self._session.prompts(request).ids)

    def describe(self) -> Mapping[str, str]:
        """For the start line: model, device, format, where the master is, what was proved."""
        return self._session.describe()

    def record(self) -> Mapping[str, Json]:
        """For run.json: base folder, selection, and what rollouts depend on besides the weights."""
        return self._session.record()

    def library_chat(self, conversations: Sequence[Sequence[Mapping[str, str]]], sampling: Sampling) -> int:
        """VLLM's own `LLM.chat` on conversations, at what is served now; returns the tokens generated. For benches."""
        return self._session.library_chat(conversations, sampling)

    def usual_member(self, seed: int, sigma: float) -> None:
        """Make a member ready as published scripts do: noise of torch added in place, in every worker. For benches.

        On copies of the checkpoint's tensors, since vLLM may have packed its own out of reach.
        """
        self._session.rpc("coevo_usual", seed, sigma)

    def close(self) -> None:
        """End vLLM."""
        self._session.close()


class VllmPolicy:
    """Weights being served, for the length of a lease.

    Attributes:
        id: hash of master digest, perturbation and selection.
    """

    def __init__(self, session: Session, id: str, salt: str) -> None:  # noqa: A002 - the Protocol's word
        """`salt`: of the prefix cache; equal salts are equal weights."""
        self.id = id
        self._session, self._salt = session, salt
        self._ended = False

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete all, in order; one that does not fit the context says so in its own completion.

        Raises:
            UserError: the chat template refuses a request.
            RuntimeError: the lease has ended.
            RunError: vLLM stopped.
        """
        if self._ended:
            raise RuntimeError("complete() was called after the policy's lease ended")
        answers = [asyncio.wrap_future(answer) for answer in self._session.ask(list(requests), self._salt)]
        try:
            return list(await asyncio.gather(*answers))
        except BaseException:
            for answer in answers:
                answer.cancel()
            raise

    def endpoint(self) -> AbstractAsyncContextManager[Endpoint]:
        """This member as an OpenAI-compatible API on loopback, until the context or the lease ends."""
        from coevo.endpoint import serve

        return serve(self)

    def end(self) -> None:
        """The weights may change from here on."""
        self._ended = True
