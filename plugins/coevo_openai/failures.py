"""What a failed request means: try again, this request's own fault, or the end of the run."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal, cast
from urllib.parse import urljoin

from coevo.text import printable
from coevo_openai.words import Said, words_of

Kind = Literal["again", "refused", "overflow", "unknown_model", "fatal"]

_AGAIN = frozenset({408, 409, 425, 429})
_BUSY = frozenset({429, 503, 529})
_NEVER_FITS = frozenset({400, 413, 422})
"""Where overflow is looked for, besides 5xx: servers that name no cause call it a fault of their own."""
_ELSEWHERE = frozenset({300, 301, 302, 303, 307, 308})
"""What sends a request on; the rest of 3xx is about caches and proxies."""
_OTHER_PROTOCOL = "the server wants to speak another protocol (101), which was not asked for"
_LONGEST = 300
_PASSWORD = re.compile(r"(?<=//)[^/?#\s@'\"]{1,2000}@")
_CHECK_ADDRESS = "see that --set openai.base_url=URL is the address of its API, usually ending in /v1"
_ABSURD_WAIT = 7 * 86_400.0
"""Seconds; a server that asks for more means something else (a time of day, milliseconds), and is not obeyed."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt gave no answer.

    Attributes:
        kind: `again` may be repeated; `refused` and `overflow` end the request; `unknown_model` and `fatal` the run.
        message: in one line, without the key.
        wait: seconds that the server asks to wait, None where it does not say.
        unsure: whether the server may have generated, and billed, an answer that did not arrive.
        throttled: whether it said that too much is asked of it at once.
        shape: what is wrong with the form of an answer, empty for any other failure; the same form twice is for good.
    """

    kind: Kind
    message: str
    wait: float | None = None
    unsure: bool = False
    throttled: bool = False
    shape: str = ""


class NoCompletionError(Exception):
    """A server's success that holds no chat completion."""


class FailedAnswerError(Exception):
    """A server's success that says itself that the request failed.

    Attributes:
        said: in the server's words.
        status: of HTTP that it names, 0 where it names none.
    """

    def __init__(self, said: Said, status: int = 0) -> None:
        super().__init__(said.text)
        self.said, self.status = said, status


def understood(error: Exception, key: str, key_env: str, way: str = "") -> Failure | None:
    """What an exception of the openai package, or of HTTP, or a timeout, means; None for any other.

    Args:
        error: of one attempt.
        key: taken out of every message.
        key_env: the environment variable that it is in.
        way: how the server is reached, in words for the end of a message; empty for directly.
    """
    import openai

    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return Failure("again", f"no answer in time{way}", unsure=True)
    if isinstance(error, FailedAnswerError):
        return _failed_answer(error, key, key_env)
    if isinstance(error, openai.APIStatusError):
        status, headers = int(error.status_code), cast(Mapping[str, str], error.response.headers)
        if 300 <= status < 400:
            return Failure("fatal", sent_on(error.response, key))
        return _of_status(status, said_in(error), key, key_env, asked_to_wait(headers), way)
    if isinstance(error, openai.APIConnectionError) or is_of_http(error):
        cause = (error.__cause__ or error) if isinstance(error, openai.OpenAIError) else error
        said, name = of_connection(cause, key), type(cause).__name__
        what = said if said in (name, _OTHER_PROTOCOL) else f"{name}: {said}"
        if type(cause).__name__ == "DecodingError":
            return Failure("again", f"the answer cannot be unpacked ({what})", unsure=True, shape="packing")
        # Without a connection nothing was asked; one that broke may have been used.
        return Failure("again", f"{what}{way}", unsure=type(cause).__name__ not in ("ConnectError", "ConnectTimeout"))
    return None


def of_connection(error: BaseException, key: str) -> str:
    """What broke a connection, in a line: the library's words, but where they are about its own insides."""
    said = one_line(error, key)
    return _OTHER_PROTOCOL if "_SWITCH_UPGRADE" in said else said


def is_of_http(error: BaseException) -> bool:
    """Whether it comes from the library below the openai package: httpx, or httpx2 in later versions of it."""
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")


def said_in(error: Any) -> Said:
    """The server's own words in an error of the openai package, without the package's around them."""
    packing = strange_packing(error.response)
    if packing:
        return Said(f"words packed as {packing!r}, which was not asked for")
    return words_of(cast(bytes, error.response.content))


def strange_packing(response: Any) -> str:
    """How a body is packed that nobody here can unpack, and that came as it is; empty for any other."""
    asked = str(response.request.headers.get("accept-encoding", "")).lower()
    known = {"identity", *(coding.partition(";")[0].strip() for coding in asked.split(","))}
    packed = str(response.headers.get("content-encoding", "")).lower().split(",")
    return printable(", ".join(coding.strip() for coding in packed if coding.strip() not in {"", *known}))[:_LONGEST]


def one_line(error: object, key: str = "") -> str:
    """The text of an error in one line of bounded length, printable, without the key and passwords of addresses."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = _PASSWORD.sub("***@", text.replace(key, "***") if key else text)
    return printable(text)[:_LONGEST]


def refused_key(status: int, said: str, key_env: str) -> str:
    """What to tell a user whose key is not accepted."""
    mend = f"check the key in the environment variable {key_env}" if key_env else "openai.key_env names no key"
    return f"the server does not accept the key ({status}): {said}; {mend}"


def sent_on(response: Any, key: str = "") -> str:
    """What to tell a user whose server wants to be asked elsewhere; prompts and key are not sent there unasked."""
    status, location = int(response.status_code), str(response.headers.get("location", ""))
    if status not in _ELSEWHERE:
        return f"the server answers {status}, which is no answer to a request of this kind; {_CHECK_ADDRESS}"
    if not location:
        return f"the server sends requests on ({status}) and does not say where; {_CHECK_ADDRESS}"
    try:
        there = urljoin(str(response.request.url), location)
    except ValueError:
        there = location
    here, address = _base(str(response.request.url)), _base(there)
    if here == address:
        return (
            f"the server sends requests on ({status}) to where they came from, {one_line(there, key)}; {_CHECK_ADDRESS}"
        )
    return (
        f"the server sends requests on to {one_line(address, key)}; if that is where to ask, say so with --set "
        "openai.base_url=URL"
    )


def _base(url: str) -> str:
    return url.rstrip("/").removesuffix("/chat/completions").removesuffix("/models")


def _of_status(status: int, said: Said, key: str, key_env: str, wait: float | None = None, way: str = "") -> Failure:
    words = one_line(said.text, key) if said.text else "no more words"
    if status in (401, 403):
        return Failure("fatal", refused_key(status, words, key_env))
    if status == 402 or "insufficient_quota" in said.codes:
        return Failure("fatal", f"the account has nothing left to spend ({status}): {words}")
    if status == 404:
        return Failure("unknown_model", words)
    if status == 407:
        return Failure("fatal", f"the proxy wants to know who asks (407): {words}{way}")
    if said.overflow and (status in _NEVER_FITS or (status >= 500 and status not in _BUSY)):
        return Failure("overflow", words)
    if status in _AGAIN or status >= 500:
        # A proxy's own failures look like the server's.
        through = way if status in (502, 503, 504) else ""
        return Failure("again", f"{status}: {words}{through}", wait, throttled=status in _BUSY)
    mend = "; a field that it does not know is left out with openai.omit" if status in (400, 422) else ""
    return Failure("refused", f"the server refuses the request ({status}): {words}{mend}")


def _failed_answer(error: FailedAnswerError, key: str, key_env: str) -> Failure:
    """A success of HTTP that was none: what it says of itself counts, and what it does not say may get better."""
    if error.said.overflow:
        return Failure("overflow", one_line(error.said.text, key))
    if error.status >= 400:
        return _of_status(error.status, error.said, key, key_env)
    if "insufficient_quota" in error.said.codes:
        return _of_status(402, error.said, key, key_env)
    words = one_line(error.said.text, key) if error.said.text else "it does not say why"
    return Failure("again", f"the server failed while it answered: {words}", unsure=True)


def asked_to_wait(headers: Mapping[str, str]) -> float | None:
    """Seconds from now that `retry-after-ms` or `Retry-After` (seconds or a date) asks for; None without, or absurd."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _sensible(milliseconds / 1000.0)
    plain = headers.get("retry-after", "")
    seconds = _number(plain)
    if seconds is not None or not plain:
        return _sensible(seconds)
    try:
        return _sensible(max(parsedate_to_datetime(plain).timestamp() - time.time(), 0.0))
    except (ValueError, OverflowError):
        return None


def _sensible(seconds: float | None) -> float | None:
    return None if seconds is None or seconds > _ABSURD_WAIT else seconds


def _number(text: str) -> float | None:
    """A finite number that is not negative, else None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return max(number, 0.0) if math.isfinite(number) else None
