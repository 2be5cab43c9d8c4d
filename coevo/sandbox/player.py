"""What runs inside a candidate's process: the model's source, and its functions whenever they are called.

Nothing here can be trusted, because the candidate shares the interpreter. It has no instance, no `solve` and no
answer's value; it is told the arguments of one call after another and says what the function returns.
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from coevo.sandbox.answers import UnanswerableError, encode
from coevo.sandbox.calls import GoneError, Received, receive, send

CALLS_FD, ANSWERS_FD = 3, 4
FILE = "<candidate>"
ANSWER, FAILURE = b"=", b"!"
_MESSAGE_CHARACTERS = 400
_ANY = 1 << 62


def play() -> None:
    """Load the source that comes over `CALLS_FD` and answer calls until nobody asks any more. Never returns."""
    first = os.getpid()

    def answer(*parts: bytes) -> None:
        if os.getpid() != first:
            # A child that the candidate forked came back here: there is one answer.
            os._exit(1)
        # Nobody waits for this process once `solve` has its last answer.
        for stream in (sys.stdout, sys.stderr):
            # The candidate may have put anything in their place.
            with contextlib.suppress(BaseException):
                stream.flush()
        send(ANSWERS_FD, *parts)

    with contextlib.suppress(GoneError):
        _play(answer)
    os._exit(0)


def _play(answer: Callable[..., None]) -> None:
    source = receive(CALLS_FD, _ANY)
    try:
        module = _load(source)
    except BaseException as error:  # noqa: BLE001 - a candidate may raise SystemExit and worse
        return answer(FAILURE, failure(error, isinstance(error, _UnreadableError)))
    answer(ANSWER, encode(dict(names_of(module))))
    received = Received()
    while True:
        name, arguments, named = received.unpack(receive(CALLS_FD, _ANY))
        try:
            said = ANSWER, encode(module[name](*arguments, **named))
        except UnanswerableError as error:
            said = FAILURE, json.dumps(["invalid_solution", str(error), ""]).encode()
        except BaseException as error:  # noqa: BLE001 - as above
            said = FAILURE, failure(error)
        answer(*said)
        arguments = named = None


class _UnreadableError(Exception):
    """The source is no Python."""


def _load(source: bytes) -> dict[str, Any]:
    try:
        text = source.decode()
        code = compile(text, FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise _UnreadableError from error
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    # Equal sources shall give equal answers, so code that draws numbers starts from the same state.
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - what a candidate calls without thinking
    module = types.ModuleType("candidate")
    module.__file__ = FILE
    sys.modules["candidate"] = module
    exec(code, module.__dict__)
    return module.__dict__


def names_of(module: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """What `solve` may ask of the module: its constants, and of a function that there is one, which is None."""
    for name, value in list(module.items()):
        if type(name) is str and not name.startswith("_"):
            if callable(value):
                yield name, None
            elif type(value) in (bool, int, float, str):
                yield name, value


def failure(error: BaseException, unreadable: bool = False) -> bytes:
    """What an exception comes to: a status, one line, and the name of its class."""
    if unreadable:
        error = error.__cause__ or error
    status = "syntax" if unreadable else status_of(error)
    return json.dumps([status, message_of(error), type(error).__name__]).encode()


def status_of(error: BaseException) -> str:
    """The status of a candidate that ends with `error`."""
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if isinstance(error, ImportError):
        return "import"
    # numpy's errstate and evaluators raise it where a number stops being one.
    if isinstance(error, FloatingPointError):
        return "non_finite"
    return "exception"


def message_of(error: BaseException) -> str:
    """One line: the type, the message and the candidate's line that was running."""
    try:
        text = " ".join(str(error).split())
    except Exception as second:  # noqa: BLE001 - the class is the candidate's
        text = f"its message raised {type(second).__name__}"
    line = error.lineno if isinstance(error, SyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            line = trace.tb_lineno
        trace = trace.tb_next
    # SyntaxError says its line itself.
    where = "" if line is None or isinstance(error, SyntaxError) else f" (line {line})"
    return f"{type(error).__name__}: {text[:_MESSAGE_CHARACTERS]}{where}"
