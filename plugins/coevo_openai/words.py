"""What a server says in the body of an error, whatever form it has.

OpenAI's form is `{"error": {"message": …, "code": …}}`. Others write the text itself under `error`, put it under
`detail` (as FastAPI does: a text, or a list of what is wrong with which field), `message` or `title`, pass the body of
yet another server on, or answer with plain text or a page of HTML.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from coevo.records import Json

_SPEAKING = ("error", "detail", "message", "msg", "description", "error_description", "title", "errors", "reason")
"""Keys that a text is looked for under, the likeliest first."""
_NAMING = ("code", "type", "error_type", "status", "status_code")
_MOST_DIGITS = 400
"""A float has 309."""
_NESTED = 6
"""Objects within objects that are looked into."""
_LONGEST = 4000
"""Characters of a text that are looked at, far more than are shown; also fewer digits than Python makes an int of."""
_OVERFLOW = re.compile(
    r"""
    context_length | max_model_len | request_too_large | exceed_context_size
    | context \s (?: length | window | size | limit )
    | (?: maximum \s )? model \s length
    | longer \s than \s the \s maximum \s model
    | (?: prompt | input ) (?: \s length )? \s (?: is \s )? too \s (?: long | large )
    | when \s context \s (?: the \s )? overflows
    | tokens \s to \s keep \s from \s the \s initial \s prompt
    | input \s length \s .{0,60}? exceeds? \b
    | input \s token \s count \s .{0,40}? exceeds? \b
    | input \s tokens \s exceed \b
    | inputs `? \s (?: tokens \s \+ | must \s have \s less \s than )
    | tokens \s in \s the \s prompt \s cannot \s exceed
    | too \s large \s for \s model \s with
    | max_seq_len
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""How servers say that prompt and answer do not fit: OpenAI, vLLM, SGLang, llama.cpp, Ollama, LM Studio, TGI,
Anthropic, Mistral, Gemini, Cohere, TabbyAPI."""


@dataclass(frozen=True, slots=True)
class Said:
    """A server's own words.

    Attributes:
        text: in one line, empty where it said nothing.
        codes: how it names the error for programs, in lower case.
    """

    text: str
    codes: str = ""

    @property
    def overflow(self) -> bool:
        """Whether it says that prompt and answer do not fit the model's context."""
        return _OVERFLOW.search(f"{self.codes} {self.text}") is not None


def words_of(body: bytes | str) -> Said:
    """What the body of an error says."""
    text = body if isinstance(body, str) else text_of(body)
    try:
        data = loads(text)
    except (ValueError, RecursionError):
        return Said(plain(text))
    return words_in(data)


def loads(text: str) -> Json:
    """JSON, also where a number has more digits than Python reads: such a one is infinite.

    Raises:
        ValueError: it is none.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_int=_whole)


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def words_in(data: Json) -> Said:
    """What the parsed body of an error says; its JSON where no text is found in it."""
    text = _text(data, _NESTED)
    if not text and data:
        text = plain(json.dumps(data, ensure_ascii=False))
    return Said(text[:_LONGEST].strip(), " ".join(_codes(data, _NESTED)).lower())


def text_of(body: bytes, charset: str = "") -> str:
    """The text of a body: UTF-8, else what the server says that it is, else Latin-1, which reads anything."""
    for encoding in ("utf-8-sig", charset):
        try:
            return body.decode(encoding)
        except (ValueError, LookupError):
            continue
    return body.decode("latin-1")


def _text(data: Json, depth: int) -> str:
    if isinstance(data, str):
        return plain(data)
    if depth == 0:
        return ""
    if isinstance(data, list):
        texts = [_text(item, depth - 1) for item in cast(list[Json], data)[:_NESTED]]
        return "; ".join(text for text in texts if text)
    if not isinstance(data, dict):
        return ""
    said = cast(Mapping[str, Json], data)
    text = next((found for key in _SPEAKING if (found := _text(said.get(key), depth - 1))), "")
    # FastAPI: which field it is about.
    loc = said.get("loc")
    place = plain(".".join(map(str, cast(list[Json], loc)))) if isinstance(loc, list) else ""
    # A router: what the server behind it said.
    behind = _behind(said, depth)
    return ": ".join(part for part in (place, text, behind) if part)


def _behind(said: Mapping[str, Json], depth: int) -> str:
    metadata = said.get("metadata")
    raw: Any = cast(dict[str, Json], metadata).get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str):
        try:
            raw = loads(raw)
        except (ValueError, RecursionError):
            return plain(raw)
    return _text(raw, depth - 1)


def _codes(data: Json, depth: int) -> Iterator[str]:
    if depth == 0 or not isinstance(data, dict):
        return
    said = cast(Mapping[str, Json], data)
    yield from (str(said[key])[:_LONGEST] for key in _NAMING if isinstance(said.get(key), str | int))
    for key in ("error", "detail"):
        yield from _codes(said.get(key), depth - 1)


def plain(text: str) -> str:
    """The beginning of a text in one line; of a page of HTML its title and what is to be read on it."""
    text = text[:_LONGEST]
    if re.search(r"<(?:!doctype html|html|head|body|title|h1)\b", text, re.IGNORECASE):
        # Each pattern ends where the next match could begin, or takes all: none looks twice at the same text.
        text = re.sub(r"<(script|style)\b.*?(?:</\1\s*>|\Z)", " ", text, flags=re.IGNORECASE | re.DOTALL)
        text = html.unescape(re.sub(r"<[^<>]*>", " ", text))
    return " ".join(text.split())
