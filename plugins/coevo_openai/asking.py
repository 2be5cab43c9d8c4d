"""One question until it is answered: attempts, waits, budget, and what each of them cost."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from coevo.errors import RequestFailedError, RunError
from coevo.records import Completion, Request, Sampling
from coevo_openai.connecting import LARGEST, received
from coevo_openai.dialect import Dialect
from coevo_openai.failures import (
    FailedAnswerError,
    Failure,
    NoCompletionError,
    one_line,
    strange_packing,
    understood,
)
from coevo_openai.replies import Reply, parsed, reply_of, usage_of
from coevo_openai.server import Server
from coevo_openai.spending import Purse, Usage, estimate

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0


@dataclass(slots=True)
class Gate:
    """When the server may be asked again: one request that is told to wait holds up all others.

    Attributes:
        opens: as `time.monotonic` counts.
    """

    opens: float = 0.0

    def close(self, seconds: float) -> None:
        """Nobody asks for so long."""
        self.opens = max(self.opens, time.monotonic() + seconds)

    def left(self) -> float:
        """Seconds until it opens, 0 if it is open."""
        return max(self.opens - time.monotonic(), 0.0)


@dataclass(slots=True)
class Turns:
    """What belongs to one event loop: the places for requests, the news that money came back, what ended the run."""

    places: asyncio.Semaphore
    changed: asyncio.Event
    ended: RunError | None = None


@dataclass(slots=True)
class Patience:
    """How long a question is asked.

    Attributes:
        budget: seconds from the first attempt on, waits included.
        retries: attempts after the first.
    """

    budget: float
    retries: int


@dataclass(slots=True)
class Asker:
    """Asks a server, once or several times.

    Its parts are shared by all questions: where it is told to wait, all wait.
    """

    server: Server
    dialect: Dialect
    purse: Purse
    patience: Patience
    gate: Gate = field(default_factory=Gate)
    noted: bool = False

    def tell(self, note: str) -> None:
        """Say once, to the one who looks on, what may hold for every answer."""
        if note and not self.noted:
            self.noted = True
            print(f"coevo: note: an answer of engine 'openai' was empty: {note}", file=sys.stderr, flush=True)

    async def ask(self, request: Request, client: AsyncOpenAI, turns: Turns) -> Completion:
        """The completion of a request; one that does not fit the context says so in its finish reason.

        Args:
            request: with its sampling.
            client: connections to the server.
            turns: of the running event loop.

        Raises:
            RequestFailedError: the server gave no answer within the budget and the retries, or refuses the request.
            RunError: it accepts no request, or the cap on the cost would be passed.
            UserError: the request has a prefill that the options refuse.
        """
        async with turns.places:
            if turns.ended is not None:  # one that got its place when another failed for all
                raise turns.ended
            try:
                return await _Question(self, request, client, turns).answered()
            except RunError as error:
                turns.ended = error
                raise


class _Question:
    """A request on its way, with what its attempts were billed."""

    def __init__(self, asker: Asker, request: Request, client: AsyncOpenAI, turns: Turns) -> None:
        self._asker, self._request, self._client, self._turns = asker, request, client, turns
        self._messages = asker.dialect.messages(request)
        self._deadline = time.monotonic() + asker.patience.budget
        self._billed = (0, 0)
        self._shape = ""
        self._limit_name = asker.dialect.limit_name

    def _left(self) -> float:
        return self._deadline - time.monotonic()

    async def answered(self) -> Completion:
        """The completion, after as many attempts as it takes and patience allows."""
        for attempt in range(self._asker.patience.retries + 1):
            outcome = await self._attempt(again=attempt > 0)
            if isinstance(outcome, Failure) and self._renamed(outcome):
                outcome = await self._attempt(again=True)
            if isinstance(outcome, Completion):
                self._asker.purse.spending.answers += 1
                return outcome
            await self._judge(outcome, attempt)
        raise AssertionError("unreachable")

    async def _judge(self, failure: Failure, attempt: int) -> None:
        """Wait for the next attempt, or raise because there is none."""
        patience, server = self._asker.patience, self._asker.server
        if failure.kind == "unknown_model":
            raise RunError(
                f"{server.address} answers 404 for model {self._asker.dialect.model!r}: {failure.message}; "
                f"{await server.offered(self._client)}"
            )
        if failure.kind == "fatal":
            raise RunError(f"{server.address}: {failure.message}")
        if failure.kind == "refused":
            raise self._given_up(failure.message)
        if failure.shape and failure.shape == self._shape:
            raise self._given_up(f"{failure.message} (asked {attempt + 1} times; the same again is not worth more)")
        self._shape = failure.shape
        if attempt == patience.retries:
            raise self._given_up(f"{failure.message} (asked {attempt + 1} times, openai.retries = {patience.retries})")
        wait = failure.wait or _backoff(attempt)  # "at once" may be a clock that goes wrong
        if failure.throttled:
            self._asker.gate.close(wait)
        if wait >= self._left():
            waits = f" (wait {wait:.0f} s)" if failure.wait is not None else ""
            raise self._given_up(
                f"{failure.message}{waits}; openai.budget_seconds = {patience.budget:g} leaves no time for another try"
            )
        await asyncio.sleep(wait)

    def _given_up(self, message: str) -> RequestFailedError:
        self._asker.purse.spending.given_up += 1
        return RequestFailedError(message)

    def _renamed(self, failure: Failure) -> bool:
        """Whether the server only wants another name for the length of an answer, which it then gets from now on."""
        dialect, other = self._asker.dialect, "max_completion_tokens"
        if failure.kind != "refused" or self._limit_name == other or not dialect.may_rename:
            return False
        if other in failure.message:
            dialect.limit_name = other
        return other in failure.message

    async def _attempt(self, again: bool) -> Completion | Failure:
        """One request, once the gate is open and the purse allows it."""
        asker, spending = self._asker, self._asker.purse.spending
        closed = asker.gate.left()
        if closed >= self._left() > 0.0:
            return Failure("again", "the server told another request to wait", wait=closed)
        arguments = asker.dialect.arguments(self._request)
        self._limit_name = asker.dialect.limit_name
        longest = (self._request.sampling or Sampling()).max_new_tokens
        reserved: float | None = None
        usage: Usage | None = None
        unsure = True  # nothing is known of a request that is cancelled
        try:
            async with asyncio.timeout(max(self._left(), 0.0)):
                while (closed := asker.gate.left()) > 0.0:
                    await asyncio.sleep(closed * random.uniform(1.0, 1.1))  # not all at once when it opens
                reserved = await asker.purse.reserve(self._messages, longest, self._turns.changed)
                spending.retries += again
                content, response = await self._sent(arguments)
            usage, outcome = self._read(content, response)
            unsure = usage is None and (not isinstance(outcome, Failure) or outcome.unsure)
        except Exception as error:
            failure = understood(error, asker.server.key, asker.server.key_env, asker.server.way)
            if failure is None:
                raise
            unsure, outcome = failure.unsure, failure
        finally:
            if reserved is not None:
                asker.purse.settle(reserved, usage, self._messages, unsure=unsure)
                self._turns.changed.set()
        return self._completion(outcome)

    async def _sent(self, arguments: Mapping[str, Any]) -> tuple[bytes, Any]:
        """The body of a success, not more of it than an answer can have, and the response."""
        completions: Any = self._client.chat.completions  # the package's types know no fields of others
        create = completions.with_streaming_response.create
        return await received(create(**arguments, extra_headers=self._asker.server.headers))

    def _read(self, content: bytes, response: Any) -> tuple[Usage | None, Reply | Failure]:
        """What was billed, as far as it is known, and the reply or why there is none."""
        server, usage = self._asker.server, None
        outcome: Reply | Failure
        try:
            if len(content) > LARGEST:
                raise NoCompletionError(f"the answer has more than {LARGEST >> 20} MB")
            data = parsed(content, str(response.headers.get("content-type", "")), strange_packing(response))
            usage = usage_of(data)
            longest = (self._request.sampling or Sampling()).max_new_tokens
            outcome = reply_of(data, server.secret, longest)
            usage = usage or estimate(self._messages, outcome.text + outcome.thoughts)
        except NoCompletionError as error:
            what = one_line(error, server.key)
            outcome = Failure("again", what, unsure=usage is None, shape=what.partition(": '")[0])
        except FailedAnswerError as error:
            failure = understood(error, server.key, server.key_env)
            assert failure is not None
            outcome = failure
        if usage is not None:
            self._billed = (self._billed[0] + usage.prompt, self._billed[1] + usage.completion)
        return usage, outcome

    def _completion(self, outcome: Reply | Failure) -> Completion | Failure:
        if isinstance(outcome, Reply):
            self._asker.tell(outcome.note)
            return self._asker.dialect.completion(self._request, outcome, self._billed)
        if outcome.kind == "overflow":
            return Completion("", (), (), "context_overflow", tokens=self._billed, note=outcome.message)
        return outcome


def _backoff(attempt: int) -> float:
    """Seconds before the next attempt: twice as many every time, and half of them by chance."""
    return min(_FIRST_WAIT * 2.0**attempt, _LONGEST_WAIT) * random.uniform(0.5, 1.0)
