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
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np

from coevo.sandbox.problem import Problem

FILE = "<candidate>"
_MESSAGE_CHARACTERS = 400
_KEYS = "keys of a dictionary are text there, and one is of type"


def run(
    source: bytes,
    entry: str,
    problem: Problem,
    instances: Sequence[object],
    result: int,
    stages: Sequence[int] = (),
) -> None:
    """Judge `source` and write one JSON object to the descriptor `result`. Never returns.

    After as many instances as `stages` says, a line with the solutions since the last one goes ahead of it. Nobody
    answers: who has seen enough ends the process.
    """
    first = os.getpid()

    def write(text: str) -> None:
        if os.getpid() != first:
            # A child that the candidate forked came back here: there is one answer.
            os._exit(1)
        data = memoryview(text.encode())
        while data:
            data = data[os.write(result, data) :]

    write(_answer(source, entry, problem, instances, write, frozenset(stages)))
    for stream in (sys.stdout, sys.stderr):
        # The candidate may have put anything in their place.
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(0)


def _answer(
    source: bytes,
    entry: str,
    problem: Problem,
    instances: Sequence[object],
    write: Callable[[str], None],
    stages: frozenset[int],
) -> str:
    try:
        text = source.decode()
        code = compile(text, FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        return _failure("syntax", _message(error))
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    try:
        function = _load(code, entry)
        if function is None:
            return _failure("no_entry", f"the module defines no function {entry!r}")
        solutions: list[str] = []
        for done, instance in enumerate(instances, 1):
            text, fault = _encode(problem.solve(function, instance))
            if fault:
                return fault
            solutions.append(text)
            if done in stages:
                write(f"[{', '.join(solutions)}]\n")
                solutions.clear()
        return f'{{"status": "ok", "value": [{", ".join(solutions)}]}}'
    except BaseException as error:  # noqa: BLE001 - a candidate may raise SystemExit and worse
        return _failure(_status(error), _message(error))


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


def _failure(status: str, message: str) -> str:
    return json.dumps({"status": status, "message": message})


def _encode(solution: object) -> tuple[str, str]:
    """A solution as JSON, as it is now: a candidate may change it later. Or, second, the claim that says why not."""
    try:
        text = json.dumps(solution, allow_nan=False, default=_plain)
        if "{" in text:  # a key that is no text would become one, and the objective would not find it
            _check_keys(solution)
        return text, ""
    except ValueError as error:
        return "", _failure("non_finite", f"the solution holds no finite number: {error}")
    except (TypeError, RecursionError) as error:
        said = str(error)
        if said.startswith("keys must be"):  # json's own complaint, about a tuple and the like
            said = f"{_KEYS} {said.rpartition(' ')[2]}; return a list of [key, value] pairs"
        return "", _failure("invalid_solution", f"the solution does not fit in JSON: {said}")
    except BaseException as error:  # noqa: BLE001 - `tolist` may be the candidate's
        return "", _failure(_status(error), _message(error))


def _plain(value: object) -> object:
    convert = getattr(value, "tolist", None)
    if convert is not None:
        return convert()
    kind = type(value).__name__
    mend = "return a sorted list" if kind in ("set", "frozenset") else "return lists, numbers and text"
    raise TypeError(f"a {kind} is in it; {mend}")


def _check_keys(value: object) -> None:
    """Refuse dictionaries with keys that JSON does not have."""
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        for key in items:
            if not isinstance(key, str):
                raise TypeError(f"{_KEYS} {type(key).__name__}; return a list of [key, value] pairs")
        inner: Iterable[object] = items.values()
    elif isinstance(value, list | tuple):
        inner = cast("Iterable[object]", value)
    else:
        return
    for each in inner:
        _check_keys(each)


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
