"""What a success of HTTP holds: a reply, a failure that the server admits, or nothing that can be understood.

Only what is needed must be there. Thoughts are told apart from the answer and dropped; a field that nobody asked for
and that is odd costs nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from coevo.engines import thinking
from coevo.records import Json
from coevo_openai.failures import FailedAnswerError, NoCompletionError, one_line
from coevo_openai.spending import Usage
from coevo_openai.words import loads, plain, text_of, words_in

_MOST_TOKENS = 10_000_000
"""Of one answer or prompt; no model holds more, so a server that counts more miscounts."""
_LONGEST_TOKEN, _SHORTEST_LIMIT = 256, 1 << 16
"""Characters: few vocabularies have longer tokens, and where few tokens are asked for no answer shorter than this is
refused. All else has to be looked through for thoughts, and by the task."""
_REASONS = {
    "eos": "stop", "eos_token": "stop", "stop_sequence": "stop", "end_turn": "stop", "": "stop",
    "max_tokens": "length", "model_length": "length", "context_overflow": "length",
}  # fmt: skip
"""Other servers' words for why an answer ended, in lower case. That a prompt does not fit is for coevo alone to say:
what was answered was generated, and at most cut."""
_FAILED = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource"})
"""Ends that say that the server failed: routers, vLLM and SGLang, DeepSeek."""
_SAID = frozenset({"text", "output_text"})
_THOUGHT = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content", "tool_call", "tool_use"})
_MORE_TOKENS = "give it more with --set sampling.max_new_tokens=N"
_NO_THOUGHTS = (
    "switch reasoning off, where the server can, with "
    "--set 'openai.extra_body={chat_template_kwargs={enable_thinking=false}}'"
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as the server gave it.

    Attributes:
        text: without thoughts.
        reason: why it ended.
        logprobs: of its tokens, None where the server gives none that can be used.
        thoughts: what the server gave apart from the text.
        note: what a reader should know of it, in a line; empty for most.
    """

    text: str
    reason: str
    logprobs: tuple[float, ...] | None = None
    thoughts: str = ""
    note: str = ""


def parsed(body: bytes, content_type: str = "", packing: str = "") -> Mapping[str, Json]:
    """The body of a success.

    Args:
        body: as it came, unpacked.
        content_type: the header, for the character set.
        packing: that it still has, because nobody here asked for it.

    Raises:
        NoCompletionError: it is no JSON object.
    """
    text = text_of(body, content_type.partition("charset=")[2].partition(";")[0].strip("\"' "))
    if not text.strip():
        raise NoCompletionError("the answer is empty")
    if text.lstrip().startswith(("data:", "event:", ": ")):
        raise NoCompletionError(
            "the answer is a stream, which was not asked for; the server may leave that with "
            "--set openai.extra_body={stream=false}"
        )
    try:
        data = loads(text)
    except (ValueError, RecursionError):
        if packing:
            raise NoCompletionError(
                f"the answer cannot be unpacked: it is packed as {packing!r}, which was not asked for"
            ) from None
        raise NoCompletionError(f"the answer is no JSON: {plain(text)[:100]!r}") from None
    if not isinstance(data, dict):
        raise NoCompletionError(f"the answer is no JSON object: {plain(text)[:100]!r}")
    return cast(Mapping[str, Json], data)


def usage_of(data: Mapping[str, Json]) -> Usage | None:
    """The usage that a body tells; None where it tells none, or one that cannot be."""
    told = _table(data.get("usage"))
    prompt, completion = _count(told.get("prompt_tokens")), _count(told.get("completion_tokens", 0))
    return None if prompt is None or completion is None or not (prompt or completion) else Usage(prompt, completion)


def _count(value: Json) -> int | None:
    """A number of tokens, also one that was written as a text or with a point."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return int(number) if 0 <= number <= _MOST_TOKENS and number.is_integer() else None


def reply_of(data: Mapping[str, Json], secret: str = "", max_new_tokens: int = _MOST_TOKENS) -> Reply:
    """The choice that was asked for.

    Args:
        data: of `parsed`.
        secret: taken out of all that was said.
        max_new_tokens: that were asked for.

    Raises:
        FailedAnswerError: the server says that the request failed.
        NoCompletionError: there is no choice, it is something else, or longer than so many tokens can be.
    """
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        if data.get("error") or data.get("detail") or isinstance(data.get("message"), str):
            said = words_in(data)
            raise FailedAnswerError(said, _status(said.codes))
        raise NoCompletionError("the answer holds no choices")
    choice = _first(cast(list[Json], choices))
    reason = choice.get("finish_reason")
    ended = str(_table(reason).get("type", "") if isinstance(reason, dict) else reason or "")
    if choice.get("error") or data.get("error") or ended.lower() in _FAILED:
        raise FailedAnswerError(words_in(choice.get("error") or data.get("error") or ""))
    message = choice.get("message")
    if not isinstance(message, dict):
        raise NoCompletionError("the answer is no chat completion: choices.message is no object")
    said = cast(Mapping[str, Json], message)
    text, thoughts, refusal = _content(said.get("content"))
    longest = max(_SHORTEST_LIMIT, _LONGEST_TOKEN * max_new_tokens)
    if len(text) > longest:
        raise NoCompletionError(
            f"the answer has {len(text):,} characters, and sampling.max_new_tokens = {max_new_tokens} cannot be more "
            f"than {longest:,}"
        )
    thoughts += "".join(part for name in ("reasoning_content", "reasoning") if isinstance(part := said.get(name), str))
    refusal += own if isinstance(own := said.get("refusal"), str) else ""
    ended = _REASONS.get(ended.lower(), ended)
    note = ""
    if not thinking.said(text).answer.strip():
        # Its words are no answer: a parser would look for one in them.
        note = f"the model refused: {refusal}" if refusal.strip() else _note(data, ended, thoughts + text.strip())
        text = "" if refusal.strip() else text
    if secret:
        text, thoughts, note = (part.replace(secret, "***") for part in (text, thoughts, note))
    return Reply(text, ended, _logprobs(choice.get("logprobs")), thoughts + refusal, one_line(note) if note else "")


def _first(choices: list[Json]) -> Mapping[str, Json]:
    """Of several choices, though one was asked for, that which is called the first."""
    tables = [cast(Mapping[str, Json], choice) for choice in choices if isinstance(choice, dict)]
    if not tables:
        raise NoCompletionError("the answer is no chat completion: its choices are no objects")
    return next((choice for choice in tables if choice.get("index") == 0), tables[0])


def _content(content: Json) -> tuple[str, str, str]:
    """What was said, what was thought and how it was refused, of a text or of a list of parts.

    Raises:
        NoCompletionError: it is neither, or a part that should say something has no text that can be found.
    """
    if content is None:
        return "", "", ""
    if isinstance(content, str):
        return content, "", ""
    if not isinstance(content, list):
        raise NoCompletionError(f"the answer is no chat completion: content is a {type(content).__name__}")
    said = thought = refused = ""
    for part in cast(list[Json], content):
        table = {"type": "text", "text": part} if isinstance(part, str) else _table(part)
        kind, inner = table.get("type", "text"), _inner(table)
        if not isinstance(kind, str | None):  # a list or an object could not even be looked up
            raise NoCompletionError(
                f"the answer is no chat completion: the type of a part of content is a {type(kind).__name__}"
            )
        if inner is None and kind not in _THOUGHT:
            raise NoCompletionError(
                f"the answer is no chat completion: a part of content has no text: '{json.dumps(part)[:100]}'"
            )
        if kind in _SAID:
            said += inner or ""
        elif kind == "refusal":
            refused += inner or ""
        else:
            thought += inner or ""
    return said, thought, refused


def _inner(part: Mapping[str, Json], depth: int = 4) -> str | None:
    """The text of a part, whatever its key; of a list of parts those of all; None where there is none."""
    for name in ("text", "refusal", "thinking", "reasoning", "content", "value"):
        value: Any = part.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and depth:
            inner = [_inner(_table(item), depth - 1) for item in cast(list[Json], value)]
            return None if None in inner else "".join(text for text in inner if text)
        if isinstance(value, dict) and depth:
            return _inner(cast(Mapping[str, Json], value), depth - 1)
    return None


def _note(data: Mapping[str, Json], ended: str, thoughts: str) -> str:
    """Why there may be no text, and what helps; empty where nothing points to thoughts."""
    usage = _table(data.get("usage"))
    generated = _count(usage.get("completion_tokens"))
    details = _table(usage.get("completion_tokens_details"))
    reasoned = _count(details.get("reasoning_tokens")) or 0
    told = f"all {generated:,} tokens" if generated else "all tokens"
    if ended == "length":
        sure = "went" if thoughts or reasoned else "seem to have gone"
        return f"{told} {sure} into reasoning and none into the answer; {_MORE_TOKENS}, or {_NO_THOUGHTS}"
    if thoughts or reasoned:
        return f"the model reasoned and then gave no answer (finish_reason {ended!r}); {_NO_THOUGHTS}"
    return ""


def _logprobs(value: Json) -> tuple[float, ...] | None:
    listed = _table(value).get("content")
    if not isinstance(listed, list):
        return None
    found = [_table(token).get("logprob") for token in cast(list[Json], listed)]
    numbers = [float(number) for number in found if isinstance(number, int | float) and not isinstance(number, bool)]
    return tuple(numbers) if len(numbers) == len(found) and all(map(math.isfinite, numbers)) else None


def _table(value: Json) -> Mapping[str, Json]:
    return cast(Mapping[str, Json], value) if isinstance(value, dict) else {}


def _status(codes: str) -> int:
    """The status of HTTP that the codes of an error name, 0 without."""
    return next((int(word) for word in codes.split() if re.fullmatch("[45][0-9][0-9]", word)), 0)
