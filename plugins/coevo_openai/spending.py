"""What was asked of the server and what it cost, held against a cap before anything is sent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from coevo.errors import RunError
from coevo.records import Message

MILLION = 1_000_000
_BYTES_A_TOKEN = 4
_FRAME = 16
"""Tokens that a chat template puts around a message, with room to spare."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer; `told` is False where the server gave none and they are estimated."""

    prompt: int
    completion: int
    told: bool = True


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens, in any currency."""

    prompt: float = 0.0
    completion: float = 0.0

    def of(self, prompt: int, completion: int) -> float:
        """What so many tokens cost."""
        return (prompt * self.prompt + completion * self.completion) / MILLION


@dataclass(slots=True)
class Spending:
    """The ledger of an engine, from its start on.

    Attributes:
        requests: sent, repeats included.
        answers: that could be used.
        retries: requests that repeated an earlier one.
        given_up: questions that got no answer in the end.
        prompt_tokens, completion_tokens: as the server counts them, also of answers that could not be used.
        estimated: answers without a usage, whose tokens are estimated from their length.
        cost: of these tokens.
        possible: what requests may have cost besides, at most, of which the server told nothing (it was cut off).
    """

    requests: int = 0
    answers: int = 0
    retries: int = 0
    given_up: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: int = 0
    cost: float = 0.0
    possible: float = 0.0


def estimate(messages: tuple[Message, ...], text: str) -> Usage:
    """Tokens of an answer whose server does not count: a token is four bytes, a message three more."""
    prompt = sum(_tokens(m.get("content", "")) + 3 for m in messages)
    return Usage(prompt, _tokens(text), told=False)


def _tokens(text: str) -> int:
    return math.ceil(_bytes(text) / _BYTES_A_TOKEN)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


class Purse:
    """Lets a request be sent only if it cannot pass the cap, whatever it will turn out to cost.

    No token is shorter than a byte, so the bytes of a prompt bound its tokens; `max_new_tokens` bounds the
    answer. What a server adds by itself (a system prompt) is learned from the first answer that tells it.
    """

    def __init__(self, prices: Prices, cap: float | None) -> None:
        self.prices, self.cap = prices, cap
        self.spending = Spending()
        self._reserved = 0.0
        self._under_way = 0
        self._hidden = 0
        self._told = Spending()

    def spent(self) -> Mapping[str, float]:
        """What was spent since the last call besides tokens, without what is 0; `cost` wherever there is a price."""
        now, before = self.spending, self._told
        names = ("requests", "retries", "given_up", "estimated", "cost", "possible")
        more = {name: float(getattr(now, name) - getattr(before, name)) for name in names}
        self._told = replace(now)
        priced = bool(self.prices.prompt or self.prices.completion)
        return {name: value for name, value in more.items() if value or (name == "cost" and priced)}

    def most(self, messages: tuple[Message, ...], new_tokens: int) -> float:
        """What a request can cost at most."""
        return self.prices.of(self._prompt_bound(messages) + self._hidden, new_tokens)

    @staticmethod
    def _prompt_bound(messages: tuple[Message, ...]) -> int:
        return _FRAME + sum(_bytes(m.get("content", "")) + _FRAME for m in messages)

    async def reserve(self, messages: tuple[Message, ...], new_tokens: int, changed: asyncio.Event) -> float:
        """Book the most that a request can cost, before it is sent.

        Where that does not fit while others are under way, it waits for what those really cost.

        Args:
            messages: of the request.
            new_tokens: of the answer, at most.
            changed: of the running event loop; to be set after every `settle`.

        Raises:
            RunError: the cap would be passed.
        """
        while not self._fits(most := self.most(messages, new_tokens)):
            if not self._under_way:
                raise RunError(self._refusal(most))
            changed.clear()
            await changed.wait()
        self._reserved += most
        self._under_way += 1
        self.spending.requests += 1
        return most

    def _fits(self, most: float) -> bool:
        spent = self.spending.cost + self.spending.possible
        return self.cap is None or spent + self._reserved + most <= self.cap

    def _refusal(self, most: float) -> str:
        spent = self.spending
        maybe = f", and at most {spent.possible:.6g} more for requests that were cut off" if spent.possible else ""
        return (
            f"engine 'openai' has spent {spent.cost:.6g} of openai.max_cost = {self.cap:g}{maybe}; the next request "
            f"may cost {most:.6g} and was not sent. A resumed run may spend as much again"
        )

    def settle(
        self, reserved: float, usage: Usage | None, messages: tuple[Message, ...], *, unsure: bool = False
    ) -> None:
        """Replace a reservation by what is known.

        Args:
            reserved: what `reserve` gave.
            usage: what the server told, or an estimate; None where there was no answer.
            messages: of the request.
            unsure: there was no answer, and the server may have billed it all the same.
        """
        spent, cost = self.spending, 0.0
        if usage is not None:
            cost = self.prices.of(usage.prompt, usage.completion)
            spent.prompt_tokens += usage.prompt
            spent.completion_tokens += usage.completion
            spent.estimated += not usage.told
            spent.cost += cost
            if usage.told:
                self._hidden = max(self._hidden, usage.prompt - self._prompt_bound(messages))
        if unsure or (usage is not None and not usage.told):
            spent.possible += max(reserved - cost, 0.0)
        self._under_way -= 1
        self._reserved = self._reserved - reserved if self._under_way else 0.0  # no residue of rounding

    def describe(self) -> Mapping[str, str]:
        """Prices and cap, for the start line; empty without."""
        if not (self.prices.prompt or self.prices.completion):
            return {}
        cap = "no cap" if self.cap is None else f"at most {self.cap:g}"
        return {"price": f"{self.prices.prompt:g} in, {self.prices.completion:g} out a million tokens, {cap}"}
