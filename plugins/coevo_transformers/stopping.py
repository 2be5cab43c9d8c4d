"""From token ids to text, one token at a time, and where the text ends."""

from collections.abc import Sequence
from typing import Any

_CONTEXT = 6
"""Prompt tokens decoded along with the first new ones: some tokenizers write a token otherwise at a start."""


class TextStream:
    """The text of one completion as it grows.

    Only the last few tokens are decoded at each step, and a character of several tokens appears once it is
    whole. The stop strings are looked for in the text, so one that ends inside a token is found too.

    Attributes:
        text: What has been said, without the stop string and what followed it.
        stopped: Whether a stop string was met.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int], stop: Sequence[str], swallow: str = "") -> None:
        """Starts after a prompt.

        Args:
            tokenizer: What has `decode` as tokenizers of transformers have it.
            prompt: Its ids; the last few give the first new token its context.
            stop: Strings that end the text.
            swallow: Whitespace that was cut off the prefill; text that begins with it loses it again.
        """
        self._decode = tokenizer.decode
        self._ids = list(prompt[-_CONTEXT:])
        self._shown = len(self._ids)  # ids whose text is in `_all`
        self._from = 0  # ids from here on are decoded together
        self._all = ""
        self._stop = tuple(s for s in stop if s)
        self._longest = max((len(s) for s in self._stop), default=0)
        self._searched = 0
        self._swallow = swallow
        self.text = ""
        self.stopped = False

    def push(self, token: int) -> bool:
        """Takes the next token; True when the text has ended."""
        self._ids.append(token)
        return bool(self._stop) and self._advance(last=False)

    def finish(self) -> str:
        """The text when no more tokens come; what was held back as half a character is added."""
        if not self.stopped:
            self._advance(last=True)
        return self.text

    def _advance(self, *, last: bool) -> bool:
        before = self._plain(self._ids[self._from : self._shown])
        now = self._plain(self._ids[self._from :])
        if now.endswith("\ufffd") and not last:
            return False  # half a character; the next token may complete it
        self._all += now[len(before) :]
        self._from, self._shown = self._shown, len(self._ids)
        text = self._all
        begin = len(self._swallow) if self._swallow and text.startswith(self._swallow) else 0
        if self._swallow.startswith(text) and text != self._swallow and not last:
            return False  # it may still become what is swallowed
        start = max(begin, self._searched - self._longest + 1)
        found = [at for s in self._stop if (at := text.find(s, start)) >= 0]
        self._searched = len(text)
        self.stopped = bool(found)
        self.text = text[begin : min(found)] if found else text[begin:]
        return self.stopped

    def _plain(self, ids: list[int]) -> str:
        return self._decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
