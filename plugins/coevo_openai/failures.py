"""What a failed request means: try again, this request's own fault, or the end of the run."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal, cast

Kind = Literal["again", "refused", "overflow", "unknown_model", "fatal"]

_AGAIN = frozenset({408, 409, 425, 429})
_OVERFLOW = (
    "context_length",
    "context length",
    "context window",
    "context size",
    "max_model_len",
    "maximum model length",
    "prompt is too long",
    "input is too long",
)
"""How servers say that a prompt is too long, in lower case. A 400 with none of them is another mistake."""
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt gave no answer.

    Attributes:
        kind: `again` may be repeated; `refused` and `overflow` end the request; `unknown_model` and `fatal` the run.
        message: in one line, without the key.
        wait: seconds that the server asks to wait, None where it does not say.
        unsure: whether the server may have generated, and billed, an answer that did not arrive.
        throttled: whether it said that too much is asked of it at once.
    """

    kind: Kind
    message: str
    wait: float | None = None
    unsure: bool = False
    throttled: bool = False


class NoCompletionError(Exception):
    """A server's success that holds no chat completion."""


def understood(error: Exception, key: str, key_env: str) -> Failure | None:
    """What an exception of the openai package, or a timeout, means; None for any other.

    Args:
        error: of one attempt.
        key: taken out of every message.
        key_env: the environment variable that it is in.
    """
    import openai

    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return Failure("again", "no answer in time", unsure=True)
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        what = one_line(error, key) if cause is None else f"{type(cause).__name__}: {one_line(cause, key)}"
        # Without a connection nothing was asked; one that broke may have been used.
        return Failure("again", what, unsure=type(cause).__name__ not in ("ConnectError", "ConnectTimeout"))
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, one_line(said_in(error), key), key_env)
    return None


def said_in(error: Any) -> str:
    """The server's own words in an error of the openai package, without the package's around them."""
    body: Any = error.body
    if isinstance(body, dict) and isinstance(message := cast(dict[str, Any], body).get("message"), str) and message:
        return message
    return str(error).removeprefix(f"Error code: {error.status_code} - ")


def one_line(error: object, key: str = "") -> str:
    """The text of an error in one line of bounded length, without the key."""
    text = " ".join(str(error).split()) or type(error).__name__
    return (text.replace(key, "***") if key else text)[:_LONGEST]


def refused_key(status: int, said: str, key_env: str) -> str:
    """What to tell a user whose key is not accepted."""
    mend = f"check the key in the environment variable {key_env}" if key_env else "openai.key_env names no key"
    return f"the server does not accept the key ({status}): {said}; {mend}"


def _of_status(error: Any, said: str, key_env: str) -> Failure:
    status = int(error.status_code)
    code = f"{error.code or ''} {error.type or ''}".lower()
    if status in (401, 403):
        return Failure("fatal", refused_key(status, said, key_env))
    if status == 402 or "insufficient_quota" in code:
        return Failure("fatal", f"the account has nothing left to spend ({status}): {said}")
    if status == 404:
        return Failure("unknown_model", said)
    if status in _AGAIN or status >= 500:
        wait = asked_to_wait(cast(Mapping[str, str], error.response.headers))
        return Failure("again", f"{status}: {said}", wait, throttled=status in (429, 503))
    if any(words in f"{code} {said.lower()}" for words in _OVERFLOW):
        return Failure("overflow", said)
    mend = "; a field that it does not know is left out with openai.omit" if status in (400, 422) else ""
    return Failure("refused", f"the server refuses the request ({status}): {said}{mend}")


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds from now that `retry-after-ms` or `Retry-After` (seconds or a date) asks for, None without."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000.0
    plain = headers.get("retry-after", "")
    seconds = _number(plain)
    if seconds is not None or not plain:
        return seconds
    try:
        return max(parsedate_to_datetime(plain).timestamp() - time.time(), 0.0)
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    """A finite number that is not negative, else None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return max(number, 0.0) if math.isfinite(number) else None
