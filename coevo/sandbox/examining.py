"""What the author's code does besides what it is for, as `coevo check` tells it."""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from coevo.sandbox.fingerprints import fingerprint, fingerprints
from coevo.sandbox.limits import Limits
from coevo.sandbox.problem import Problem
from coevo.sandbox.trust import author_code

_SHOWN_CHARACTERS = 60
_SLOW_SECONDS = 0.2  # of the first call, where the second takes a tenth of it: something is compiled or read


@contextmanager
def watched(noticed: list[str], watch: bool = True) -> Generator[None]:
    """Append to `noticed`, in words, what is done to the process and its output inside; without `watch` nothing."""
    if not watch:
        yield
        return
    before, stdout, kept = _surroundings(), sys.stdout, os.dup(1)
    with tempfile.TemporaryFile() as said, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        os.dup2(said.fileno(), 1)
        try:
            yield
        finally:
            closed = sys.stdout is not stdout or stdout.closed
            if not stdout.closed:
                stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)
            if closed:
                noticed.append("closes or replaces sys.stdout; leave it as it is")
                sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - lives as long as the process
            said.seek(0)
            if text := said.read():
                os.write(1, text)
                shown = " ".join(text.decode(errors="replace").split())[:_SHOWN_CHARACTERS]
                noticed.append(f"prints ({shown!r}), each time that it is called; in a run that goes to standard error")
            for warning in {str(w.message): w for w in warned}.values():
                shown = " ".join(str(warning.message).split())[: 2 * _SHOWN_CHARACTERS]
                noticed.append(f"warns: {warning.category.__name__}: {shown}")
            for name, value in _surroundings().items():
                if value != before[name]:
                    noticed.append(f"changes {name}; put it back, or do without")


def _surroundings() -> dict[str, object]:
    return {
        "the working directory": os.getcwd(),
        "the environment": dict(os.environ),
        "numpy's error settings": np.geterr(),
    }


def _random_state() -> object:
    return random.getstate(), repr(np.random.get_state())  # noqa: NPY002 - what an author calls without thinking


def look_at_split(problem: Problem, file: Path, split: str, limits: Limits) -> dict[str, object]:
    """`instances` of a split, twice.

    Returns:
        `count`; `content` and `again`, the fingerprints of each call, None where they cannot be compared; `noticed`; or
        `error` alone.
    """
    noticed: list[str] = []
    try:
        with watched(noticed), author_code(limits):
            found = list(problem.instances(split))
        with author_code(limits):
            again = list(problem.instances(split))
    except Exception as error:  # noqa: BLE001 - the check shows it
        return {"error": f"{type(error).__name__}: {error}"}
    return {"count": len(found), "content": fingerprints(found), "again": fingerprints(again), "noticed": noticed}


def examine(
    problem: Problem,
    instances: Sequence[object],
    solutions: Sequence[object],
    mark: Callable[[int], None],
    limits: Limits,
) -> dict[str, object]:
    """Call `objective` and `bound` twice for each instance.

    Returns:
        `found`: by function, in words, what else they do.
    """
    bound = cast("Callable[[object], float] | None", getattr(problem, "bound", None))
    found = {"objective": list[str](), "bound": list[str]()}
    count = min(len(instances), len(solutions))

    def value(index: int) -> float:
        return problem.objective(solutions[index], instances[index])

    def limit(index: int) -> float:
        return cast(Any, bound)(instances[index])

    for name, call in (("objective", value), ("bound", limit)):
        if name == "bound" and not callable(bound):
            continue
        try:
            with watched(found[name]):
                _call(call, instances[:count], found[name], mark, limits)
        except Exception:  # noqa: BLE001 - what it refuses, or raises, the evaluation of the seed tells
            continue
    return {"found": found}


def _call(
    call: Callable[[int], float],
    instances: Sequence[object],
    noticed: list[str],
    mark: Callable[[int], None],
    limits: Limits,
) -> None:
    state = _random_state()
    changed = kept = False
    for index, instance in enumerate(instances):
        mark(index)
        before, began = fingerprint(instance), time.process_time()
        with author_code(limits):
            first = call(index)
        seconds = time.process_time() - began
        if before is not None and fingerprint(instance) != before and not changed:
            changed = True
            noticed.append(
                f"changes instance {index} (or keeps something in it); copy what it changes. Each evaluation has fresh "
                "instances, so that no other program is valued by it"
            )
        began = time.process_time()
        with author_code(limits):
            second = call(index)
        if index == 0 and seconds > _SLOW_SECONDS and time.process_time() - began < seconds / 10:
            noticed.append(
                f"takes {seconds:.2g} s when it is called first, in each evaluation anew; compile, or read, while "
                "evaluate.py is imported"
            )
        if repr(first) != repr(second) and not changed and not kept:  # NaN is no other value than NaN
            kept = True
            noticed.append(
                f"gives {first!r} and then {second!r} for the same solution of instance {index}; it must depend on its "
                "arguments alone, not on random numbers or on what was asked before"
            )
    if _random_state() != state:
        noticed.append("draws from the process's random numbers; draw from a generator with a fixed seed instead")
