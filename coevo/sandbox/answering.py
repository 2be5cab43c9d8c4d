"""What a child of the author's process answers: values of solutions, bounds, and what `coevo check` asks."""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import random
import socket
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np

from coevo.errors import UserError
from coevo.host.shapes import shown
from coevo.sandbox import wire
from coevo.sandbox.examining import examine, look_at_split
from coevo.sandbox.limits import Limits
from coevo.sandbox.pristine import Pristine
from coevo.sandbox.problem import Problem
from coevo.sandbox.trust import AuthorLeft, author_code
from coevo.sandbox.work import work_of

Mark: TypeAlias = Callable[[int], None]


class NoNumberError(Exception):
    """What an author's function gave, in words, where it had to give a number."""


def number_of(given: object) -> float:
    """A number as a float, infinite where it is too large; a text or a truth is none, though Python makes one of it.

    Raises:
        NoNumberError: it is none.
    """
    try:
        if isinstance(given, str | bytes | bytearray | bool | np.bool_ | np.str_):
            raise TypeError
        return float(cast(Any, given))
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        raise NoNumberError(shown(cast(object, given))) from None


class Answers:
    """The problem, and what it is asked."""

    def __init__(self, problem: Problem, file: Path, instances: Sequence[object], limits: Limits) -> None:
        self._problem, self._file, self._instances, self._limits = problem, file, instances, limits
        self._pristine = Pristine(problem, instances)

    def serve(self, channel: socket.socket, mark: Mark) -> None:
        """Answer until the run has no more questions; `mark` is told the instance in work."""
        pid, warned = os.getpid(), dict[str, None]()

        def showwarning(message: Any, category: Any, filename: Any, lineno: Any, *_: object) -> None:
            warned[f"{category.__name__}: {message} ({filename}, line {lineno})"] = None

        # Each child would tell the same again.
        warnings.showwarning = showwarning
        while (message := wire.receive(channel)) is not None:
            reply = self._answer(cast("dict[str, Any]", message[0]), message[1], mark)
            for stream in (sys.stdout, sys.stderr):
                # The author's code may have closed it.
                with contextlib.suppress(ValueError, OSError, AttributeError):
                    stream.flush()
            if os.getpid() != pid:
                # A child that the author's code forked came back here: there is one answer.
                os._exit(1)
            wire.send(channel, {**reply, "warned": list(warned)})

    def _answer(self, asked: Mapping[str, Any], payload: bytes, mark: Mark) -> dict[str, object]:
        try:
            match asked["ask"]:
                case "values":
                    return self._values(int(asked["first"]), marshal.loads(payload), mark)
                case "bounds":
                    return {"bounds": self._bounds(mark)}
                case "split":
                    return look_at_split(self._problem, self._file, asked["split"], self._limits)
                case "work":
                    return work_of(self._problem, self._file, asked["split"], asked["options"], self._limits)
                case _:
                    return examine(self._problem, self._instances, marshal.loads(payload), mark, self._limits)
        except UserError as error:
            return {"refused": str(error)}
        except AuthorLeft as error:
            return {"left": str(error)}

    def _values(self, first: int, solutions: Sequence[object], mark: Mark) -> dict[str, object]:
        """The values of solutions, up to the first that is refused, and why it is; `clean` if nothing was changed."""
        if first == 0:
            # Equal solutions shall have equal values, so code that draws numbers starts from the same state.
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002 - what an author calls without thinking
        values: list[float] = []
        status, said = self._into(values, first, solutions, mark)
        clean = self._pristine.unchanged(first, len(values) + 1)
        return {"values": values, "status": status, "message": said, "clean": clean}

    def _into(self, values: list[float], first: int, solutions: Sequence[object], mark: Mark) -> tuple[str, str]:
        for index, solution in enumerate(solutions, first):
            mark(index)
            try:
                values.append(self._value(index, solution))
            except NoNumberError as error:
                return "judge_error", f"`objective` of evaluate.py gave {error} for instance {index}; expected a number"
            except FloatingPointError as error:
                return "non_finite", f"instance {index}: {error}"
            except ValueError as error:
                return "invalid_solution", f"instance {index}: {error}"
            except Exception as error:  # noqa: BLE001 - a solution of any shape may come
                return "invalid_solution", f"instance {index}: {type(error).__name__}: {error}"
        return "ok", ""

    def _value(self, index: int, solution: object) -> float:
        instance = self._instances[index]
        with author_code(self._limits):
            given = self._problem.objective(solution, instance)
        value = number_of(given)
        if not math.isfinite(value):
            raise FloatingPointError(f"the objective is {value}")
        return value

    def _bounds(self, mark: Mark) -> list[float | str]:
        """The bound of each instance, or what it raised."""
        found: list[float | str] = []
        bound = cast(Any, self._problem).bound
        for index, instance in enumerate(self._instances):
            mark(index)
            try:
                with author_code(self._limits):
                    given = bound(instance)
                found.append(number_of(given))
            except NoNumberError as error:
                found.append(f"it gave {error}; expected a number")
            except Exception as error:  # noqa: BLE001 - the run shows it
                found.append(f"{type(error).__name__}: {error}")
        return found
