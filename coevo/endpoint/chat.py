"""From the JSON of a chat completion to requests, and from completions back to JSON. No I/O.

What a policy cannot do (tools, images, structured output) is refused and never ignored: an agent that believes it was
obeyed would be evolved for something that never happened.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, cast

import pydantic
from pydantic import Field

from coevo.endpoint.errors import ApiError
from coevo.engines.prompts import TEMPLATE_CALL
from coevo.errors import did_you_mean
from coevo.numerics.seeds import derive
from coevo.records import Completion, Json, Message, Request, Sampling

NEUTRAL: Mapping[str, tuple[Json, ...]] = {
    "add_special_tokens": (False,),
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "ignore_eos": (False,),
    "include_reasoning": (True,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_logprobs": (0,),
    "use_beam_search": (False,),
}
"""Fields of OpenAI and vLLM that would change the answer, and the values that do not."""

IGNORED = frozenset(
    {
        "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_retention", "request_id",
        "safety_identifier", "service_tier", "store", "user",
    }
)  # fmt: skip
"""Fields that change nothing about an answer."""

_WHOLE = 1 << 64
_COUNT = 1 << 31
"""Engines count in integers of C; one that fails of a number of the agent's own would look like a broken engine."""


class ChatBody(pydantic.BaseModel):
    """The fields that are obeyed; None is as good as left out."""

    model_config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)

    model: str | None = None
    messages: Annotated[list[dict[str, Any]], Field(min_length=1, fail_fast=True)]
    temperature: Annotated[float, Field(ge=0)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=_COUNT)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=_COUNT)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, lt=_COUNT)] | None = None
    stop: str | Annotated[list[str], Field(fail_fast=True)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=_WHOLE)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    logprobs: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream is to end with what was spent."""
        return bool((self.stream_options or {}).get("include_usage"))


def read_body(data: Json) -> ChatBody:
    """Check a request's JSON.

    Raises:
        ApiError: 400; the first field that is wrong.
    """
    if not isinstance(data, dict):
        raise ApiError(400, "the body is no JSON object")
    kept: dict[str, Json] = {}
    for name, value in cast(dict[str, Json], data).items():
        if name in NEUTRAL and value is not None and value not in NEUTRAL[name]:
            raise ApiError(400, f"{name!r} is not supported by this endpoint; leave it out", "unsupported", name)
        if name not in NEUTRAL and name not in IGNORED:
            if name not in ChatBody.model_fields:
                hint = did_you_mean(name, list(ChatBody.model_fields))
                hint = hint if hint.startswith("; did") else ""
                raise ApiError(400, f"unknown field {name!r}{hint}", "unknown_field", name)
            kept[name] = value
    try:
        body = ChatBody.model_validate(kept)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        where = ".".join(str(part) for part in first["loc"]) if name == "messages" else name
        value = "" if first["type"] == "missing" else f" got {repr(first['input'])[:80]}:"
        raise ApiError(400, f"{where}{value} {first['msg'][:1].lower()}{first['msg'][1:]}", param=name) from None
    for option in TEMPLATE_CALL.intersection(body.chat_template_kwargs or {}):
        field = f"chat_template_kwargs.{option}"
        raise ApiError(400, f"{field} is no option of the chat template; leave it out", "unsupported", field)
    return body


def requests_of(body: ChatBody, sampling: Sampling, next_seed: Callable[[], int], system: str = "") -> list[Request]:
    """The requests of a body, one for each of its `n` choices.

    Args:
        body: what was asked.
        sampling: for what it leaves open.
        next_seed: gives a seed for every choice of a body without one.
        system: put before the messages.

    Raises:
        ApiError: 400; a message that cannot be rendered as text.
    """
    messages = [_message(index, message) for index, message in enumerate(body.messages)]
    prefill = ""
    if body.continue_final_message:
        if messages[-1]["role"] != "assistant":
            raise ApiError(
                400, "continue_final_message needs a last message of the assistant", param="continue_final_message"
            )
        if body.add_generation_prompt:
            raise ApiError(
                400, "continue_final_message and add_generation_prompt exclude each other",
                param="add_generation_prompt",
            )  # fmt: skip
        prefill = messages.pop()["content"]
    elif body.add_generation_prompt is False:
        raise ApiError(
            400, "add_generation_prompt false needs continue_final_message true", param="add_generation_prompt"
        )
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if "" in stop:
        raise ApiError(400, "stop got '': a stop string has at least one character", param="stop")
    request = Request(
        tuple(with_system(messages, system)), prefill, stop, _sampling(body, sampling),
        chat_options=body.chat_template_kwargs or {}, logprobs=bool(body.logprobs),
    )  # fmt: skip
    return [replace(request, seed=_seed(body.seed, i, next_seed)) for i in range(body.n or 1)]


def with_system(messages: Sequence[Message], system: str) -> list[Message]:
    """`messages` under a system message; one that is there already follows it after an empty line."""
    if not system:
        return list(messages)
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "content": f"{system}\n\n{messages[0]['content']}"}, *messages[1:]]
    return [{"role": "system", "content": system}, *messages]


def _seed(given: int | None, choice: int, next_seed: Callable[[], int]) -> int:
    """A given seed is the first choice's; 0 stands for none in a request, so it is made another."""
    if given is None:
        return next_seed()
    return given % _WHOLE if given and not choice else derive(given % _WHOLE, "choice", choice)


def _sampling(body: ChatBody, sampling: Sampling) -> Sampling:
    longest = body.max_completion_tokens or body.max_tokens
    given = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": None if body.top_k is None else max(body.top_k, 0),
        "min_p": body.min_p,
        "presence_penalty": body.presence_penalty,
        "max_new_tokens": longest,
    }
    return replace(sampling, **{name: value for name, value in given.items() if value is not None})


def _message(index: int, message: Mapping[str, Any]) -> dict[str, str]:
    where = f"messages.{index}"
    role = message.get("role")
    if role == "developer":
        role = "system"  # OpenAI's newer word for it, which chat templates do not know
    if role not in ("system", "user", "assistant"):
        raise ApiError(
            400, f"{where}.role got {role!r}: expected 'system', 'user' or 'assistant'", param=f"{where}.role"
        )
    for name, value in message.items():
        if name not in ("role", "content", "name") and value:
            raise ApiError(400, f"{where}.{name} is not supported by this endpoint", "unsupported", f"{where}.{name}")
    return {"role": role, "content": _text(where, message.get("content"))}


def _text(where: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: list[Any] = cast(list[Any], content) if isinstance(content, list) else [content]
    texts: list[str] = []
    for part in parts:
        data = cast(dict[str, Any], part) if isinstance(part, dict) else {"type": None}
        text = data.get("text")
        if data.get("type") != "text" or not isinstance(text, str):
            raise ApiError(400, f"{where}.content is not text, and nothing else is supported", param=f"{where}.content")
        texts.append(text)
    return "\n".join(texts)


def check_completions(completions: Sequence[Completion], wants_logprobs: bool) -> None:
    """Refuse what is no answer.

    Raises:
        ApiError: the prompt and the longest answer do not fit, or the engine gives no log-probabilities.
    """
    for completion in completions:
        if completion.finish_reason == "context_overflow":
            raise ApiError(
                400,
                f"the prompt of {_spent(completion)[0]} tokens and max_tokens do not fit the model's context",
                "context_length_exceeded",
                "messages",
            )
        if wants_logprobs and completion.logprobs is None:
            raise ApiError(400, "'logprobs' is not supported: this engine gives none", "unsupported", "logprobs")


def response(completions: Sequence[Completion], model: str, fingerprint: str) -> dict[str, Json]:
    """The whole answer."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": completion.text, "refusal": None},
            "logprobs": _logprobs(completion),
            "finish_reason": completion.finish_reason,
        }
        for index, completion in enumerate(completions)
    ]
    return {**_head("chat.completion", model, fingerprint), "choices": choices, "usage": _usage(completions)}


def chunks(
    completions: Sequence[Completion], model: str, fingerprint: str, include_usage: bool
) -> Iterator[dict[str, Json]]:
    """The same answer as the pieces of a stream: for every choice its role, its text and its end."""
    head = _head("chat.completion.chunk", model, fingerprint)
    for index, completion in enumerate(completions):
        pieces: list[tuple[dict[str, Json], Json, Json]] = [
            ({"role": "assistant", "content": ""}, None, None),
            ({"content": completion.text}, _logprobs(completion), None),
            ({}, None, completion.finish_reason),
        ]
        for delta, logprobs, reason in pieces:
            choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            yield {**head, "choices": [choice], **({"usage": None} if include_usage else {})}
    if include_usage:
        yield {**head, "choices": [], "usage": _usage(completions)}


def _head(kind: str, model: str, fingerprint: str) -> dict[str, Json]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": fingerprint,
    }


def _logprobs(completion: Completion) -> dict[str, Json] | None:
    """Tokens go by their ids, as vLLM names them on demand: a policy tells no texts of single tokens."""
    if completion.logprobs is None:
        return None
    content: list[dict[str, Json]] = [
        {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []}
        for token, value in zip(completion.completion_ids, completion.logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def _spent(completion: Completion) -> tuple[int, int]:
    return completion.tokens or (len(completion.prompt_ids), len(completion.completion_ids))


def _usage(completions: Sequence[Completion]) -> dict[str, Json]:
    """The choices share one prompt."""
    prompt = max(_spent(completion)[0] for completion in completions)
    generated = sum(_spent(completion)[1] for completion in completions)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}
