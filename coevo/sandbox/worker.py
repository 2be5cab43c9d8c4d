"""What runs inside a candidate's process: the model's source, then the problem's `solve` on each instance.

Nothing here can be trusted, because the candidate shares the interpreter. What it writes is a claim: the
solution is checked and its objective computed by the run (`coevo.sandbox.scoring`).
"""

from __future__ import annotations

import contextlib
import json
import linecache
import os
import random
import sys
import types
from collections.abc import Callable, Sequence

import numpy as np

from coevo.sandbox.problem import Problem

FILE = "<candidate>"
_MESSAGE_CHARACTERS = 400


def run(source: bytes, entry: str, problem: Problem, instances: Sequence[object], result: int) -> None:
    """Judge `source` and write one JSON object to the descriptor `result`. Never returns."""
    first = os.getpid()
    answer = _answer(source, entry, problem, instances)
    if os.getpid() != first:
        # A child that the candidate forked came back here: there is one answer.
        os._exit(1)
    data = memoryview(_encode(answer))
    while data:
        data = data[os.write(result, data) :]
    for stream in (sys.stdout, sys.stderr):
        # The candidate may have put anything in their place.
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(0)


def _answer(source: bytes, entry: str, problem: Problem, instances: Sequence[object]) -> dict[str, object]:
    try:
        text = source.decode()
        code = compile(text, FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return {"status": "syntax", "message": _message(error)}
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    try:
        function = _load(code, entry)
        if function is None:
            return {"status": "no_entry", "message": f"the module defines no function {entry!r}"}
        solutions = [problem.solve(function, instance) for instance in instances]
        return {"status": "ok", "value": solutions}
    except BaseException as error:  # noqa: BLE001 - a candidate may raise SystemExit and worse
        return {"status": _status(error), "message": _message(error)}


def _load(code: types.CodeType, entry: str) -> Callable[..., object] | None:
    # Equal sources shall give equal answers, so code that draws numbers starts from the same state.
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - what a candidate calls without thinking
    module = types.ModuleType("candidate")
    module.__file__ = FILE
    sys.modules["candidate"] = module
    exec(code, module.__dict__)
    function = module.__dict__.get(entry)
    return function if callable(function) else None


def _encode(answer: dict[str, object]) -> bytes:
    try:
        return json.dumps(answer, allow_nan=False, default=_plain).encode()
    except ValueError as error:
        claim = {"status": "non_finite", "message": f"the solution holds no finite number: {error}"}
    except (TypeError, RecursionError) as error:
        claim = {"status": "invalid_solution", "message": f"the solution does not fit in JSON: {error}"}
    except BaseException as error:  # noqa: BLE001 - `tolist` may be the candidate's
        claim = {"status": _status(error), "message": _message(error)}
    return json.dumps(claim).encode()


def _plain(value: object) -> object:
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"a {type(value).__name__} in it")
    return convert()


def _status(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "out_of_memory"
    if isinstance(error, ImportError):
        return "import"
    # numpy's errstate and evaluators raise it where a number stops being one.
    if isinstance(error, FloatingPointError):
        return "non_finite"
    return "exception"


def _message(error: BaseException) -> str:
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
