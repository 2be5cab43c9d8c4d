"""From a request to the token ids of its prompt."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coevo.errors import UserError
from coevo.records import Json, Request

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the whitespace at the end of the prefill that was left out of them."""

    ids: tuple[int, ...]
    trimmed: str


class Prompts:
    """Renders requests with a tokenizer's chat template.

    The assistant's turn is opened by the template and continued by the prefill, and the whole is tokenised at
    once: the model sees what it would have seen had it written the prefill itself. Whitespace at the end of a
    prefill is left out, because the following token usually carries it and a model that has to begin after it
    loses its indentation; a completion that then begins with it has it removed again.
    """

    def __init__(self, tokenizer: Any, options: Mapping[str, Json]) -> None:
        """Takes a tokenizer and options of its chat template that requests may override.

        Raises:
            UserError: The tokenizer has no chat template.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise UserError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template; expected an instruct model"
            )
        self._tokenizer = tokenizer
        self._options = dict(options)
        self._warned = False

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
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return Prompt(tuple(ids), trimmed)

    def opening(self, request: Request) -> str:
        """The text before the prefill: the messages and the beginning of the assistant's turn."""
        options = {**self._options, **request.chat_options}
        try:
            return self._tokenizer.apply_chat_template(
                [dict(message) for message in request.messages], tokenize=False, add_generation_prompt=True, **options
            )
        except Exception as error:  # noqa: BLE001 - a template is a program of the model's author
            said = " ".join(str(error).split())
            raise UserError(
                f"the chat template of {self._tokenizer.name_or_path!r} refuses the messages: {said}"
            ) from None
