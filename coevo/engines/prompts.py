"""From a request to the token ids of its prompt."""

from __future__ import annotations

import datetime
import hashlib
import inspect
import logging
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevo.engines.thinking import begins, closed, opened
from coevo.errors import UserError
from coevo.files import read_text
from coevo.records import Json, Message, Request

_log = logging.getLogger(__name__)

TEMPLATE_CALL = frozenset(
    {
        "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "conversations",
        "documents", "load_audio_from_video", "max_length", "messages", "padding", "processor_kwargs",
        "return_assistant_tokens_mask", "return_dict", "return_tensors", "sanitize_control_tokens", "self", "tokenize",
        "tokenizer_kwargs", "tools", "truncation",
    }
)  # fmt: skip
"""What transformers' call that renders a template takes for itself: a program in place of the template, what is
rendered, and what is made of the text. Requests may come from anyone, so none of them is theirs to say."""
_OF_TASKS = frozenset({"documents", "tools"})
"""Those of them that are read by the template: a task may give them, and who asks an endpoint may not."""
LONGEST_PROMPT = 16 << 20
"""Characters of a rendered prompt; no model's context holds so many."""

_NO_THINKING = ("enable_thinking", "thinking")
"""Arguments of chat templates that switch thinking off when they are false."""
_ANSWER = "the answer begins here"
_SAMPLES = ("How many apples are there?", "Name a river.")
"""Two messages that no template may write alike."""
_NOW = "strftime_now"
"""What chat templates ask for the date."""
_TEMPLATE = "<template>"
"""What jinja calls a template in tracebacks."""
_DIRECTIVES = "aAbBcdDeFfGHIjmMpRSTuUVwWxXyYzZ%"
"""Of `strftime`; the percent sign comes last, since it begins the others."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids and what belongs to the completion of them.

    Attributes:
        trimmed: The whitespace at the end of the prefill that was left out of the ids.
        opened: The mark of thinking with which the prompt ends: the completion's text begins with it.
    """

    ids: tuple[int, ...]
    trimmed: str
    opened: str = ""


class Prompts:
    """Renders requests with a tokenizer's chat template.

    The assistant's turn is opened by the template and continued by the prefill, and the whole is tokenised at
    once: the model sees what it would have seen had it written the prefill itself. Whitespace at the end of a
    prefill is left out, because the following token usually carries it and a model that has to begin after it
    loses its indentation; a completion that then begins with it has it removed again.

    A prefill begins the answer, so no thinking comes before it: it is put where the template itself lets an
    answer begin, after a block of thinking that is empty or in the channel of answers.

    Attributes:
        date: What the template takes for today; None where it does not ask.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Json], date: datetime.date | None = None) -> None:
        """Takes a tokenizer and options of its chat template that requests may override.

        Args:
            tokenizer: Of transformers.
            options: Of the chat template.
            date: For templates that print today's; None is today.

        Raises:
            UserError: The tokenizer has no chat template, several and none of them is the default, one that fails, or
                one that leaves out what the messages say.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; expected an instruct model"
            )
        self._tokenizer = tokenizer
        try:
            template: Any = tokenizer.get_chat_template()
        except ValueError:
            names = ", ".join(sorted(tokenizer.chat_template))
            raise UserError(
                f"the tokenizer of {tokenizer.name_or_path!r} has several chat templates ({names}) and none is named "
                "'default'; rename the one to use in its folder"
            ) from None
        if not isinstance(template, str):  # from a JSON file, where it may be anything
            raise UserError(f"the chat template in {self._place()!r} is {template!r:.60}; expected a text")
        self._template = template
        self.date = (date or datetime.date.today()) if _NOW in self._template else None
        call = inspect.signature(tokenizer.apply_chat_template).parameters.values()
        self._call = TEMPLATE_CALL.union(each.name for each in call if each.kind is not each.VAR_KEYWORD) - _OF_TASKS
        self._options = dict(options)
        if self.date is not None:
            self._options["chat_template"] = dated(self._template, self.date)
        self._warned = False
        self._require_messages()

    def __call__(self, request: Request) -> Prompt:
        """The prompt of a request.

        Raises:
            UserError: The chat template refuses the messages or the options.
        """
        prefill = request.prefill.rstrip()
        trimmed = request.prefill[len(prefill) :]
        if trimmed and prefill and not self._warned:
            self._warned = True
            _log.warning("the prefill %r ends in whitespace, which is left out of the prompt", request.prefill[-20:])
        text = self.opening(request) + prefill
        if len(text) > LONGEST_PROMPT:  # before it is tokenised, which takes many times its memory
            raise UserError(f"the prompt has {len(text):,} characters; at most {LONGEST_PROMPT:,} are rendered")
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return Prompt(tuple(ids), trimmed, "" if prefill else opened(text))

    def opening(self, request: Request) -> str:
        """The text before the prefill: the messages and the beginning of the assistant's turn.

        Raises:
            UserError: The chat template refuses the messages or the options.
        """
        for name in request.chat_options:
            if name in self._call:
                raise UserError(f"the chat option {name!r} of a request is no option of a template; leave it out")
        begun = self._rendered(request.messages, request.chat_options)
        if not request.prefill.strip():
            return begun
        if begins(request.prefill):  # it brings thinking of its own
            return begun.removesuffix(opened(begun))
        return self._before_an_answer(request, begun)

    def sample(self) -> tuple[int, ...]:
        """Token ids of a short prompt, (n,)."""
        return tuple(self._tokenizer(self._sample(_SAMPLES[0])[0], add_special_tokens=False)["input_ids"])

    def describe(self) -> dict[str, str]:
        """For the start line: which chat template, its date, and whether it begins an answer with thinking."""
        told = {"chat_template": hashlib.sha256(self._template.encode()).hexdigest()[:16]}
        if self.date is not None:
            told["date"] = self.date.isoformat()
        if mark := opened(self._sample(_SAMPLES[0])[0]).strip():
            told["thinking"] = f"begun by the chat template with {mark}, closed before a prefill"
        return told

    def _require_messages(self) -> None:
        """Refuse a template that would have every prompt say the same."""
        one, other = (self._sample(text) for text in _SAMPLES)
        if one == other:
            raise UserError(
                f"the chat template of {self._tokenizer.name_or_path!r} writes the same whatever the user's message "
                f"says: {one[0][:40]!r}; put one that writes messages into {self._place()!r}"
            )

    def _sample(self, text: str) -> list[str]:
        """What the template makes of a user's message, alone and under a system's, where it takes them.

        Raises:
            UserError: It takes neither, or fails.
        """
        asked: Message = {"role": "user", "content": text}
        found: list[str] = []
        refusal: _RefusedError | None = None
        for messages in ([asked], [{"role": "system", "content": "Be brief."}, asked]):
            try:
                found.append(self._rendered(messages, {}))
            except _RefusedError as error:
                refusal = error
        if not found and refusal is not None:
            raise refusal
        return found

    def _place(self) -> str:
        """The file that the template is read from, or would be."""
        folder = Path(self._tokenizer.name_or_path or ".")
        own, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
        kept = not own.is_file() and config.is_file() and '"chat_template"' in read_text(config)
        return str(config if kept else own)

    def _before_an_answer(self, request: Request, begun: str) -> str:
        """The turn up to where an answer begins, in the first of these forms that the template has.

        What it writes where thinking is switched off, what it writes before the answer of a past turn, and what it
        begins a turn with, its thinking closed.
        """
        options = {**self._options, **request.chat_options}
        for switch in _NO_THINKING if opened(begun) else ():
            if switch not in options:
                without = self._rendered(request.messages, {**request.chat_options, switch: False})
                if not opened(without):
                    return without
        try:
            answered = [*request.messages, {"role": "assistant", "content": _ANSWER}]
            past = self._rendered(answered, request.chat_options, turn=False)
        except _RefusedError:  # a template may refuse a turn that is not the user's
            past = ""
        past = past[: max(past.rfind(_ANSWER), 0)]
        return closed(past if past.startswith(begun.rstrip()) else begun)

    def _rendered(self, messages: Sequence[Message], options: Mapping[str, Json], turn: bool = True) -> str:
        """The messages and, if it is its `turn`, the beginning of the assistant's."""
        try:
            return self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tokenize=False,
                add_generation_prompt=turn,
                **{**self._options, **options},
            )
        except Exception as error:  # noqa: BLE001 - a template is a program of the model's author
            said = " ".join(str(error).split()) or type(error).__name__
            if type(error).__name__ == "TemplateError":  # exactly this one is what `raise_exception` raises
                raise _RefusedError(
                    f"the chat template of {self._tokenizer.name_or_path!r} refuses the messages: {said}"
                ) from None
            at = _line(error)
            raise UserError(
                f"the chat template in {self._place()!r} fails{f' at line {at}' if at else ''}: {said[:200]}"
            ) from None


class _RefusedError(UserError):
    """The template does not take these messages, and says so."""


def _line(error: BaseException) -> int | None:
    """The line of a template that an error comes from."""
    own: Any = getattr(error, "lineno", None)  # of a template that is no template
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == _TEMPLATE]
    return own if isinstance(own, int) else lines[-1] if lines else None


def dated(template: str, date: datetime.date) -> str:
    """A chat template for which it is midnight of `date` whenever it asks.

    transformers hands nothing that can be called to a template, so the template brings it itself.
    """
    day = datetime.datetime(date.year, date.month, date.day)
    directives = [f"%-{letter}" for letter in "dHIjmMSy"] + [f"%{letter}" for letter in _DIRECTIVES]
    replaced = "".join(f"|replace({each!r}, {day.strftime(each)!r})" for each in directives)
    return f"{{%- macro {_NOW}(format) -%}}{{{{ format{replaced} }}}}{{%- endmacro -%}}{template}"
