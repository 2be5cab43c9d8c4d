"""What runs the problem's `solve` on each instance, with a candidate's function that is in another process.

The problem's author wrote what runs here; the candidate only gives the numbers. What is written is a claim all the
same: solutions are checked and the objective is computed by the run (`coevo.sandbox.scoring`).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np

from coevo.sandbox import vetting
from coevo.sandbox.calls import GoneError
from coevo.sandbox.claims import UNSENDABLE
from coevo.sandbox.fingerprints import fingerprint
from coevo.sandbox.functions import Local, Module, Remote, UnsendableError, function
from coevo.sandbox.player import message_of, status_of
from coevo.sandbox.problem import Problem

RESULT_FD, CALLS_FD, ANSWERS_FD = 3, 4, 5
LEFT = 77
"""The exit code where the candidate's process ended in the midst of it."""

_KEYS = "keys of a dictionary are text there, and one is of type"


def run(
    source: bytes,
    entry: str,
    problem: Problem,
    instances: Sequence[object],
    most: int | None,
    stages: Sequence[int] = (),
    watch: bool = False,
) -> None:
    """Have `source` judged and write one JSON object to `RESULT_FD`. Never returns.

    After as many instances as `stages` says, a line with the solutions since the last one goes ahead of it. Nobody
    answers: who has seen enough ends the process.

    Args:
        source: of the candidate.
        entry: the function that `solve` is given.
        problem: whose `solve` runs.
        instances: that are solved.
        most: bytes of one answer of the candidate's process; None where the source is vetted and there is no process.
        stages: see above.
        watch: whether it is a failure if an instance is changed.
    """

    def write(text: str) -> None:
        data = memoryview(text.encode())
        while data:
            data = data[os.write(RESULT_FD, data) :]

    with contextlib.suppress(GoneError):
        write(_answer(source, entry, problem, instances, most, write, frozenset(stages), watch))
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(0)
    os._exit(LEFT)


def _answer(
    source: bytes,
    entry: str,
    problem: Problem,
    instances: Sequence[object],
    most: int | None,
    write: Callable[[str], None],
    stages: frozenset[int],
    watch: bool,
) -> str:
    module = _load(source) if most is None else Remote(CALLS_FD, ANSWERS_FD, source, most)
    if module.failed is not None:
        return _failure(module.failed[0], module.failed[1])
    called = function(module, entry)
    if called is None:
        return _failure("no_entry", f"the module defines no function {entry!r}")
    # As for the candidate: equal sources shall give equal solutions.
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - what an author calls without thinking
    solutions: list[str] = []
    try:
        for done, instance in enumerate(instances, 1):
            before = fingerprint(instance) if watch else None
            text, fault = _encode(problem.solve(called, instance))
            if before is not None and fingerprint(instance) != before:
                return _failure("exception", f"CHANGES {done - 1}")
            if fault:
                return fault
            solutions.append(text)
            if done in stages:
                write(f"[{', '.join(solutions)}]\n")
                solutions.clear()
    except GoneError:
        raise
    except UnsendableError as error:
        return _failure(UNSENDABLE, f"`solve` calls {entry!r} with {error}")
    except BaseException as error:  # noqa: BLE001 - whatever `solve` makes of the candidate's numbers
        if module.failed is not None and module.failed[2] is error:
            return _failure(module.failed[0], module.failed[1])
        return _failure(status_of(error), message_of(error))
    return f'{{"status": "ok", "value": [{", ".join(solutions)}]}}'


def _load(source: bytes) -> Module:
    tree = vetting.vetted(source)
    if tree is None:
        raise RuntimeError("the source is not vetted")
    return Local(tree)


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
    except BaseException as error:  # noqa: BLE001 - `tolist` may be of any class
        return "", _failure(status_of(error), message_of(error))


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
