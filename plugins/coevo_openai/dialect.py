"""From a request to what is sent, and from the reply to a completion.

A chat server takes messages, and only some of them go on with an assistant's turn that was begun for them.
Where a server cannot, the prefill stays here: it is not sent, and what the model writes up to and including it
is taken off its answer. The stop strings of such a request are not sent either. They were meant for text that
goes on after the prefill, and would end an answer at its first line break; they are cut off here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from coevo.engines import thinking
from coevo.errors import UserError
from coevo.records import Completion, Json, Message, Request, Sampling
from coevo_openai.replies import Reply

Prefill = Literal["drop", "continue", "message", "refuse"]
LimitName = Literal["max_tokens", "max_completion_tokens"]

_MOST_STOPS = 4
"""More are refused by some servers. All of them are looked for in the answer, so none is lost."""
_OPENING = re.compile(r"\A(?:\s*```[\w+-]*[ \t]*\n|\s+)+|\A`+")


@dataclass(slots=True)
class Dialect:
    """How a server wants to be spoken to.

    Attributes:
        model: its name there.
        prefill: what to do with the beginning of the assistant's turn; see the options of the engine.
        limit_name: what the server calls the longest answer.
        seed_bits: bits of a seed that it takes; 0 sends none.
        extra_body: fields of every request, as they are.
        omit: fields that are never sent.
        vllm: whether it is a vLLM server, which knows all of coevo's sampling.
        may_rename: whether `limit_name` may change once the server asks for it.
    """

    model: str
    prefill: Prefill
    limit_name: LimitName
    seed_bits: int
    extra_body: Mapping[str, Json]
    omit: frozenset[str] = frozenset()
    may_rename: bool = False
    vllm: bool = False

    def arguments(self, request: Request) -> dict[str, Any]:
        """Keyword arguments of `chat.completions.create`.

        Raises:
            UserError: the request has a prefill and `prefill` is `refuse`.
        """
        sampling = request.sampling or Sampling()
        sent: dict[str, Any] = {
            "model": self.model,
            "messages": list(self.messages(request)),
            self.limit_name: sampling.max_new_tokens,
            # Sent even where they are OpenAI's defaults: other servers have those of the model's own files.
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
        }
        if sampling.presence_penalty:
            sent["presence_penalty"] = sampling.presence_penalty
        if self.seed_bits:
            sent["seed"] = request.seed & ((1 << self.seed_bits) - 1)
        if request.logprobs:
            sent["logprobs"] = True
        stops = [stop for stop in request.stop if stop]
        if stops and (not request.prefill or self.prefill == "continue"):
            sent["stop"] = stops[:_MOST_STOPS]
        kept = {name: value for name, value in sent.items() if name not in self.omit}
        beyond = {name: value for name, value in self._beyond(request, sampling).items() if name not in self.omit}
        extra: dict[str, Json] = {**beyond, **self.extra_body}
        if (both := "chat_template_kwargs") in beyond and both in self.extra_body:
            extra[both] = {**self.extra_body[both], **beyond[both]}  # as engines of ours: a request's win
        return {**kept, "extra_body": extra} if extra else kept

    def messages(self, request: Request) -> tuple[Message, ...]:
        """The messages as they are sent."""
        given = tuple(dict(message) for message in request.messages)
        if not request.prefill or self.prefill == "drop":
            return given
        if self.prefill == "refuse":
            raise UserError(
                f"the task wants answers that go on after {request.prefill!r}, and openai.prefill is 'refuse'; use "
                "'continue' where the server can (vLLM does), else 'drop'"
            )
        # A prefill that ends in whitespace is cut as everywhere in coevo: the next token usually carries it.
        return (*given, {"role": "assistant", "content": request.prefill.rstrip()})

    def _beyond(self, request: Request, sampling: Sampling) -> dict[str, Json]:
        """What OpenAI's own server does not know: where it is asked for, or to undo what the model's files say."""
        extra: dict[str, Json] = {}
        if sampling.top_k or self.vllm:
            extra["top_k"] = sampling.top_k
        if sampling.min_p or self.vllm:
            extra["min_p"] = sampling.min_p
        if self.vllm:
            extra |= {"presence_penalty": sampling.presence_penalty, "repetition_penalty": 1.0}
        if request.chat_options:
            extra["chat_template_kwargs"] = dict(request.chat_options)
        if request.prefill and self.prefill == "continue":
            extra |= {"continue_final_message": True, "add_generation_prompt": False}
        return extra

    def completion(self, request: Request, reply: Reply, tokens: tuple[int, int]) -> Completion:
        """What was answered, without prefill and stop string."""
        text, cut = self.text(request, reply.text)
        reason = "stop" if cut else reply.reason
        # Log-probabilities belong to all that was generated; a text that was cut here has lost its tokens' places.
        logprobs = reply.logprobs if request.logprobs and text == reply.text else None
        return Completion(
            text=text,
            prompt_ids=(),
            completion_ids=(),
            finish_reason=reason,
            logprobs=logprobs,
            tokens=tokens,
            note=reply.note,
        )

    def text(self, request: Request, said: str) -> tuple[str, bool]:
        """What belongs after the prefill, and whether a stop string ended it."""
        if not request.prefill:
            return _before(said, request.stop)
        if self.prefill == "continue":
            return _before(said.removeprefix(request.prefill[len(request.prefill.rstrip()) :]), request.stop)
        return _before(_after_prefill(said, request.prefill), request.stop)


def _before(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    found = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return (text[: min(found)], True) if found else (text, False)


def _after_prefill(said: str, prefill: str) -> str:
    """What follows a prefill that the model wrote itself, at the beginning of a line; else all but its wrapping.

    Thoughts that a model writes into its answer are no part of it. Whitespace within the prefill may differ, and
    the line may begin with a mark of code or of a quotation.
    """
    answer = thinking.said(said).answer
    words = r"\s*".join(map(re.escape, prefill.split()))
    if words and (found := re.search(rf"^([ \t`>*]*){words}", answer, re.MULTILINE)):
        return _unquoted(answer[found.end() :], "`" in found[1])
    wrapped = _OPENING.match(answer)
    return _unquoted(answer[wrapped.end() :], "`" in wrapped[0]) if wrapped else answer


def _unquoted(text: str, quoted: bool) -> str:
    """`text` up to the mark that ends the code it is in."""
    return text.partition("`")[0] if quoted else text
