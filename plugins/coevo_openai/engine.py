"""The engine: a server's model, asked over HTTP.

Imports nothing heavy; openai is imported by the constructor.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from coevo.errors import CoevoError, MissingExtraError, UserError
from coevo.interfaces import Capabilities
from coevo.optional import Footprint
from coevo.records import Completion, Json, Perturbation, Request, SeedsUpdate, Update
from coevo_openai.asking import Asker, Patience, Turns
from coevo_openai.dialect import Dialect, Prefill
from coevo_openai.fields import check_added, check_left_out
from coevo_openai.server import Server
from coevo_openai.spending import Prices, Purse, Spending

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIEngine:
    """A model behind an OpenAI-compatible server; it does not adapt.

    Usage:

        engine = OpenAIEngine("some-model", base_url="http://127.0.0.1:8000/v1")
        async with engine.lease(None) as policy:
            completions = await policy.complete(requests)
        print(engine.spending)

    Attributes:
        adapts: False, so that a parameter updater is refused before anything is asked.
    """

    adapts = False

    @staticmethod
    def footprint(options: Mapping[str, Any]) -> Footprint:
        """A server has the model."""
        return Footprint(remote=True)

    def __init__(
        self,
        model: str,
        *,
        base_url: str = "",
        key_env: str = "OPENAI_API_KEY",
        concurrency: Annotated[int, Field(ge=1, le=1000)] = 8,
        budget_seconds: Annotated[float, Field(gt=0.0)] = 300.0,
        retries: Annotated[int, Field(ge=0, le=100)] = 5,
        prompt_price: Annotated[float, Field(ge=0.0)] = 0.0,
        completion_price: Annotated[float, Field(ge=0.0)] = 0.0,
        max_cost: Annotated[float, Field(gt=0.0)] | None = None,
        prefill: Literal["auto", "drop", "continue", "message", "refuse"] = "auto",
        limit_name: Literal["auto", "max_tokens", "max_completion_tokens"] = "auto",
        seed_bits: Annotated[int, Field(ge=0, le=63)] = 63,
        extra_body: dict[str, Any] | None = None,
        omit: list[str] | None = None,
        check: bool = True,
    ) -> None:
        """Reads the key and asks the server which models it has, which costs nothing.

        Args:
            model: its name at the server.
            base_url: of the server, usually ending in /v1; empty takes OPENAI_BASE_URL, else the package's own.
            key_env: name of the environment variable with the key; empty sends none. A server on this machine
                needs no key.
            concurrency: requests under way at once.
            budget_seconds: wall time of a request with all its retries and waits, from when it gets its turn.
            retries: attempts after the first.
            prompt_price: money for a million tokens of prompts.
            completion_price: money for a million generated tokens.
            max_cost: what a process may spend; a request that could pass it is not sent and ends the run.
            prefill: what to do where a task begins the answer. `continue` asks the server to go on (vLLM does),
                `drop` sends no beginning and takes it off the answer, `message` sends it as an assistant's message
                without more, `refuse` ends the run. `auto` is `continue` on a vLLM server, else `drop`.
            limit_name: the field for the longest answer; `auto` changes it if the server asks for that.
            seed_bits: bits of a seed that the server takes; 0 sends no seed.
            extra_body: fields of every request, for what a server can do besides; none that it has already.
            omit: fields that the server refuses and that are left out, such as top_p.
            check: whether to ask for the list of models at start.

        Raises:
            MissingExtraError: the package openai is not installed.
            UserError: no key, no server, or a server that does not accept the key.
            ValueError: an option that cannot be meant.
        """
        if importlib.util.find_spec("openai") is None:
            raise MissingExtraError("engine 'openai'", "openai", "openai")
        if max_cost is not None and not (prompt_price or completion_price):
            raise ValueError("max_cost needs prompt_price and completion_price, in money for a million tokens")
        check_added(extra_body or {})
        check_left_out(omit or (), capped=max_cost is not None)
        self.capabilities = Capabilities(adapts=False, logprobs=False, slots=1, deterministic=False, rolling=True)
        self._model, self._concurrency = model, concurrency
        self._turns: tuple[asyncio.AbstractEventLoop, Turns] | None = None
        self._server = Server(base_url, key_env, budget_seconds)
        models = self._server.models() if check else []
        served_by_vllm = any(owner == "vllm" for _, owner in models)
        how: Prefill = ("continue" if served_by_vllm else "drop") if prefill == "auto" else prefill
        dialect = Dialect(
            model=model,
            prefill=how,
            limit_name="max_tokens" if limit_name == "auto" else limit_name,
            seed_bits=seed_bits,
            extra_body=dict(extra_body or {}),
            omit=frozenset(omit or ()),
            may_rename=limit_name == "auto",
            vllm=served_by_vllm,
        )
        purse = Purse(Prices(prompt_price, completion_price), max_cost)
        self._asker = Asker(self._server, dialect, purse, Patience(budget_seconds, retries))

    @staticmethod
    def check_model(model: str) -> None:
        """Any name will do: it is the server's to know, and no folder even if it looks like one.

        Raises:
            UserError: the name is empty.
        """
        if not model.strip():
            raise UserError("--model is empty; expected the name of a model that the server has")

    @property
    def spending(self) -> Spending:
        """The ledger since the engine was made."""
        return self._asker.purse.spending

    @asynccontextmanager
    async def lease(self, perturbation: Perturbation | None) -> AsyncGenerator[OpenAIPolicy]:
        """Open connections to the server until the context ends.

        Raises:
            ValueError: a perturbation; the weights are not ours.
        """
        if perturbation is not None:
            raise ValueError("engine 'openai' serves fixed weights and no member of a population")
        async with self._server.client() as client:
            yield OpenAIPolicy(self._asker, client, self._own_turns(), self.digest())

    def apply(self, update: Update) -> None:
        """Nothing to move; a zero update is none.

        Raises:
            ValueError: any other update.
        """
        if not isinstance(update, SeedsUpdate) or update.terms:
            raise ValueError("engine 'openai' cannot move the weights of its model")

    def digest(self) -> str:
        """A digest of the model's name: what the server has under it cannot be known."""
        return hashlib.sha256(f"openai:{self._model}".encode()).hexdigest()

    def export(self, path: Path, dtype: str | None = None) -> None:
        """Raises UserError: the weights are the server's."""
        raise UserError("engine 'openai' has no weights to export; they are the server's")

    def spent(self) -> Mapping[str, float]:
        """For the journal: what was spent since the last call besides tokens."""
        return self._asker.purse.spent()

    def describe(self) -> Mapping[str, str]:
        """For the start line: model, server, how prefills are treated, prices and cap."""
        return {
            "model": self._model,
            "server": self._server.address,
            "prefill": self._asker.dialect.prefill,
            **self._asker.purse.describe(),
        }

    def record(self) -> Mapping[str, Json]:
        """For run.json: the server and how it is asked; of the key the name of its variable."""
        dialect = self._asker.dialect
        return {
            "server": self._server.address,
            "model": self._model,
            "key_env": self._server.key_env,
            "package": f"openai {version('openai')}",
            "prefill": dialect.prefill,
            "seed_bits": dialect.seed_bits,
            "extra_body": dict(dialect.extra_body),
            "omit": sorted(dialect.omit),
        }

    def _own_turns(self) -> Turns:
        """The places of the running loop: one that was waited for belongs to its loop for ever."""
        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = (loop, Turns(asyncio.Semaphore(self._concurrency), asyncio.Event()))
        return self._turns[1]


class OpenAIPolicy:
    """The server's model, for the length of a lease.

    Attributes:
        id: the engine's digest.
    """

    def __init__(self, asker: Asker, client: AsyncOpenAI, turns: Turns, id: str) -> None:  # noqa: A002 - the Protocol's word
        self.id = id
        self._asker, self._client, self._turns = asker, client, turns

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete all, in order, as many at once as the engine has places.

        Raises:
            RequestFailedError: one of them got no answer; the others are given up.
            RunError: the server accepts no request, or the cap on the cost would be passed.
            UserError: a request has a prefill that the options refuse.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._asker.ask(request, self._client, self._turns)) for request in requests]
        except BaseExceptionGroup as failed:
            # What ends the run goes before what ends a request.
            raise next((e for e in failed.exceptions if isinstance(e, CoevoError)), failed.exceptions[0]) from None
        return [task.result() for task in tasks]
