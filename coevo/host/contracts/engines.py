"""Engines and their policies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import cast

from coevo.host.contracts.common import DATA, described, holds, text
from coevo.host.guard import Guard, Rule, anything, guarded
from coevo.host.registry import require
from coevo.host.shapes import Wrong, has, many, number, numbers, of, plain, table, whole
from coevo.interfaces import Capabilities, Engine, Policy
from coevo.records import Completion


def engine(thing: Engine, who: str) -> Engine:
    """An engine whose methods, and those of its policies, are checked.

    Raises:
        PluginError: a method is missing that it needs for what it says it can do.
    """
    require(thing, Engine, who, leave=("apply", "export"))
    capabilities = thing.capabilities
    holds(who, lambda: of(Capabilities, capabilities, "a coevo.Capabilities", "capabilities"))
    holds(who, lambda: whole(capabilities.slots, "slots", 1))
    require(thing, Engine, who, leave=("export",) if capabilities.adapts else ("apply", "export"))
    return cast(Engine, Guard(thing, who, {**_ENGINE, "lease": _leases(who)}))


def _recorded(given: object, *_: object) -> object:
    return plain(table(given, "", "a mapping"), "a record")


def _measured(given: object, *_: object) -> object:
    numbers(given, "numbers")
    return given


def _digest(given: object, *_: object) -> str:
    if not text(given):
        raise Wrong("an empty text; expected the digest of the weights")
    return str(given)


def _share(given: object, *_: object) -> object:
    number(given, "")
    return given


def _count(given: object, *_: object) -> object:
    whole(given, "")
    return given


def _leases(who: str) -> Rule:
    """The rule of `lease`: the methods of its policy are checked as well."""
    called = f"{who}: lease()"
    served = Rule(anything, (OSError,), is_async=True)

    @asynccontextmanager
    async def leased(given: AbstractAsyncContextManager[Policy]) -> AsyncGenerator[Policy]:
        policy = await guarded(given.__aenter__, called, served)()
        leave = guarded(given.__aexit__, called, served)
        try:
            require(policy, Policy, f"{who}: the policy of lease()")
            yield cast(Policy, Guard(policy, f"{who}: the policy's", _POLICY))
        except BaseException as error:
            # What went wrong first is what is told, whatever else does on the way out.
            with suppress(Exception):
                await given.__aexit__(type(error), error, error.__traceback__)
            raise
        await leave(None, None, None)

    def check(given: object, *_: object) -> AbstractAsyncContextManager[Policy]:
        has(given, ("__aenter__", "__aexit__"), "an async context manager (contextlib.asynccontextmanager makes one)")
        return leased(cast(AbstractAsyncContextManager[Policy], given))

    return Rule(check, (OSError,))


_LONGEST_ID = 63
"""Bits of a token's id."""


def _completions(given: object, requests: object = (), *_: object) -> object:
    completions = many(Completion, given, "a coevo.Completion")
    wanted = len(cast(list[object], requests))
    if len(completions) != wanted:
        raise Wrong(f"{len(completions)} completions for {wanted} requests; expected one for each, in order")
    for completion in completions:
        of(str, completion.text, "a text", "a completion whose text is")
        of(str, completion.finish_reason, "a text such as 'stop'", "a completion whose finish_reason is")
        for name in ("prompt_ids", "completion_ids"):
            for token in many(int, getattr(completion, name), "an int", f"a completion whose {name}"):
                if token.bit_length() > _LONGEST_ID:
                    raise Wrong(f"a completion with one of {name} of {token.bit_length():,} bits; expected an id")
        of(str, completion.note, "a text", "a completion whose note is")
        if completion.tokens is not None:
            if len(many(int, completion.tokens, "an int", "a completion whose tokens")) != 2:
                raise Wrong(f"a completion whose tokens are {completion.tokens}; expected two, of prompt and answer")
            for count in completion.tokens:
                whole(count, "a completion with a count of tokens of")
    return completions


_POLICY = {"complete": Rule(_completions, DATA, is_async=True)}

# What an engine writes may find a full disk, which is no fault of its author.
_ENGINE = {
    "apply": Rule(anything, (OSError,)),
    "close": Rule(anything),
    "digest": Rule(_digest, (OSError,)),
    "export": Rule(anything, (OSError,)),
    "moved": Rule(_share),
    "reached": Rule(_measured),
    "count_tokens": Rule(_count),
    "spent": Rule(_measured),
    "save_anchor": Rule(anything, (OSError,)),
    "load_anchor": Rule(anything, (OSError,)),
    "describe": Rule(described),
    "record": Rule(_recorded),
}
