"""The JSON of a request, as far as it is text that can be kept, sent and shown."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import cast

from coevo.endpoint.chat import ChatBody, read_body
from coevo.endpoint.errors import ApiError
from coevo.records import Json

DEEPEST = 64
"""Levels of lists and objects; what reads them further on goes down a level of its own stack for each."""
MOST = 100_000
"""Lists, objects and their members: thousands of messages. Each takes many times its bytes and its time to check."""
_TEXT = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_SMALL = 64 << 10
"""Bytes that are read faster than a thread is asked."""


async def understood(data: bytes) -> ChatBody:
    """A request's fields. A large body is read in a thread: others are answered between the steps of that.

    Raises:
        ApiError: 400; the first thing that is wrong.
    """
    return _read(data) if len(data) < _SMALL else await asyncio.to_thread(_read, data)


def _read(data: bytes) -> ChatBody:
    return read_body(parsed(data))


def parsed(data: bytes) -> Json:
    """The value that JSON text stands for.

    Raises:
        ApiError: 400; it is no JSON, or none that can be used.
    """
    try:
        text = data.decode("utf-8-sig")  # by itself `json` would also take UTF-16 and UTF-32, which no client sends
        _check_count(text)
        value: Json = json.loads(text)
        _check_depth(value)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # JSON can write it, and no tokenizer, file or answer can hold it.
        raise ApiError(400, "the body has half of a surrogate pair in a text, which is no Unicode") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {error}") from None
    return value


def _check_count(text: str) -> None:
    """Refuse too many values before they are made; a text of a message may have any number of commas."""
    if _marks(text) > MOST and _marks(_TEXT.sub("", text)) > MOST:
        raise ApiError(400, f"the body has more than {MOST:,} values; expected messages of a conversation")


def _marks(text: str) -> int:
    return text.count(",") + text.count("[") + text.count("{")


def _check_depth(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for outer in level for inner in _within(outer)]
        if not level:
            return
    raise _too_deep()


def _within(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return cast(dict[str, Json], value).values()
    return cast(list[Json], value) if isinstance(value, list) else ()


def _too_deep() -> ApiError:
    return ApiError(400, f"the body is no JSON that can be read: it is nested deeper than {DEEPEST} levels")
