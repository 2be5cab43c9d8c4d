"""Tasks and their episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from coevo.errors import CoevoError, UnknownSplitError
from coevo.host.contracts.common import DATA, choices, described, text
from coevo.host.guard import Guard, Rule, anything
from coevo.host.registry import require
from coevo.host.shapes import (
    Wrong,
    choice,
    encodable,
    has,
    many,
    number,
    numbers,
    of,
    plain,
    shown,
    table,
    texts,
    whole,
)
from coevo.interfaces import Brief, Episode, Reference, Task
from coevo.optional import drives_itself
from coevo.records import EpisodeResult, Example, Request, Sampling, Step, Trajectory


def task(thing: Task, who: str) -> Task:
    """A task whose methods are checked; one that drives its own episodes makes none.

    Raises:
        PluginError: a method is missing.
    """
    require(thing, Task, who, leave=("episode",) if drives_itself(thing) else ())
    return cast(Task, Guard(thing, who, {**_TASK, "episode": makes_episodes(f"{who}: episode")}))


def _brief(given: object, *_: object) -> Brief:
    brief = of(Brief, given, "a coevo.Brief")
    for name in ("name", "title", "description", "signature", "prefill"):
        of(str, getattr(brief, name), "a text", f"a brief whose {name} is")
    for name in ("hole", "direction"):
        choice(getattr(brief, name), choices(Brief, name), f"a brief whose {name} is")
    for name in ("stop", "examples"):
        many(str, getattr(brief, name), "a text", f"a brief whose {name}")
    for reference in many(Reference, brief.references, "a coevo.Reference", "a brief whose references"):
        for name in ("name", "split"):
            of(str, getattr(reference, name), "a text", f"a brief with a reference whose {name} is")
        number(reference.value, f"a brief whose reference {reference.name!r} has the value")
    if brief.failure != "below":
        number(brief.failure, "a brief whose failure is", "'below' or a finite number")
    texts(brief.components, "a brief whose components are")
    whole(brief.max_new_tokens, "a brief whose max_new_tokens is", 1)
    whole(brief.max_calls, "a brief whose max_calls is", 1)
    return brief


def _examples(given: object, *_: object) -> object:
    examples = many(Example, given, "a coevo.Example")
    seen: set[str] = set()
    for example in examples:
        encodable(of(str, example.id, "a text", "an example whose id is"), "an example whose id is")
        if example.id in seen:
            raise Wrong(f"two examples with the id {example.id!r}; expected every id once")
        seen.add(example.id)
    return examples


def _unknown_split(error: Exception, arguments: tuple[Any, ...]) -> type[CoevoError] | None:
    """A split that does not exist is refused with a ValueError, or with the KeyError of a table of splits."""
    named = isinstance(error, LookupError) and error.args == arguments
    return UnknownSplitError if isinstance(error, ValueError) or named else None


_LONGEST_NAME = 200
"""Bytes: file systems take 255, and a file that is not whole yet has a longer name."""


def _files(given: object, *_: object) -> object:
    texts(given, "files")
    for name in cast(Mapping[str, str], given):
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise Wrong(f"a file named {name!r}; expected a name without a folder")
        if len(encodable(name, "a file named")) > _LONGEST_NAME:
            raise Wrong(f"a file named {shown(name)}; expected a name of at most {_LONGEST_NAME} bytes")
    return given


def _outcome(given: object, *_: object) -> object:
    """What an agent that drives itself may say."""
    match given:
        case EpisodeResult():
            return _result(given)
        case (EpisodeResult() as result, Trajectory() as trajectory):
            many(Step, trajectory.steps, "a coevo.records.Step", "a trajectory whose steps")
            return _result(result), trajectory
        case _:
            raise Wrong(f"{shown(given)}; expected a coevo.EpisodeResult, or a pair of it and a coevo.Trajectory")


_TASK = {
    "brief": Rule(_brief),
    "examples": Rule(_examples, turn=_unknown_split),
    "run": Rule(_outcome, DATA, is_async=True, own_task=True),
    "start": Rule(anything),
    "close": Rule(anything),
    "describe": Rule(described),
    "best_files": Rule(_files),
    "system": Rule(text),
}


def makes_episodes(who: str) -> Rule:
    """The rule of a method that makes an episode: what that gives is checked as well.

    Args:
        who: whose it is, such as `task 'mine': episode`.
    """

    def check(given: object, *_: object) -> Episode:
        has(given, ("requests", "step", "result"), "an episode (coevo.interfaces.Episode)")
        return cast(Episode, Guard(given, who, _EPISODE))

    return Rule(check, DATA)


def _requests(given: object, *_: object) -> object:
    requests = many(Request, given, "a coevo.Request ([] where the episode is over)")
    for request in requests:
        wanted = "a mapping with 'role' and 'content'"
        kind = cast(type[Mapping[str, object]], Mapping)
        for message in many(kind, request.messages, wanted, "a request whose messages"):
            for key in ("role", "content"):
                content = message.get(key)
                of(str, content, "a text", f"a request with a message whose {key!r} is")
        of(str, request.prefill, "a text", "a request whose prefill is")
        many(str, request.stop, "a text", "a request whose stop")
        if request.sampling is not None:
            _sampling(
                of(Sampling, request.sampling, "a coevo.records.Sampling, or None", "a request whose sampling is")
            )
    return requests


def _sampling(sampling: Sampling) -> None:
    for name in ("temperature", "top_p", "min_p", "presence_penalty"):
        number(getattr(sampling, name), f"a request whose sampling.{name} is")
    if sampling.temperature < 0:
        raise Wrong(f"a request whose sampling.temperature is {sampling.temperature}; expected 0 or more")
    whole(sampling.top_k, "a request whose sampling.top_k is")
    whole(sampling.max_new_tokens, "a request whose sampling.max_new_tokens is", 1)


def _result(given: object, *_: object) -> EpisodeResult:
    result = of(EpisodeResult, given, "a coevo.EpisodeResult")
    if result.return_ is not None:
        number(result.return_, "a return of", "a finite number (a failure is a status without one, as 'non_finite')")
    numbers(result.metrics, "metrics")
    artifacts = plain(table(result.artifacts, "artifacts", "a mapping"), "artifacts")
    # As a resumed run will read them: an updater must not see a tuple now and a list then.
    return result if artifacts == result.artifacts else replace(result, artifacts=artifacts)


_EPISODE = {
    "requests": Rule(_requests, DATA),
    "step": Rule(anything, DATA),
    "result": Rule(_result, DATA),
}
