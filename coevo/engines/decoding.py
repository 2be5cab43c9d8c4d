"""From token ids to text in which the marks of thinking are still there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coevo.engines.thinking import mark_tokens


class Decoding:
    """A tokenizer as it decodes answers: without special tokens but those that mark thinking.

    In some models the marks are special tokens like the end of a turn. Left out with these, they let a draft and the
    answer run into one another.

    Attributes:
        keeps_marks: Whether this tokenizer has such marks; else its own `skip_special_tokens` does.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._decode = tokenizer.decode
        special = {i: str(token) for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        special |= dict(zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True))
        marks = mark_tokens(special.values())
        self.keeps_marks = bool(marks)
        self._hidden = {i: token for i, token in special.items() if token not in marks}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True, **options: Any) -> str:
        """The text of tokens; `skip_special_tokens` leaves marks in."""
        if skip_special_tokens and self.keeps_marks:
            return self._decode([i for i in ids if i not in self._hidden], skip_special_tokens=False, **options)
        return self._decode(ids, skip_special_tokens=skip_special_tokens, **options)

    def cleaned(self, text: str, ids: Sequence[int]) -> str:
        """A text that was decoded from `ids` with all special tokens, without those that do not mark thinking."""
        for token in {self._hidden[i] for i in ids if i in self._hidden} if self.keeps_marks else ():
            text = text.replace(token, "")
        return text
