"""The candidate's functions as `solve` sees them: each call goes to the candidate's process and waits there."""

from __future__ import annotations

import builtins
import json
from collections.abc import Mapping
from typing import Any, cast

from coevo.sandbox import claims
from coevo.sandbox.answers import decode
from coevo.sandbox.calls import Arguments, receive, send
from coevo.sandbox.player import ANSWER, FAILURE


class HeuristicError(Exception):
    """The candidate's function raised what is no exception of Python's own."""


class Unsendable(Exception):
    """The problem gives its function what does not go to another process."""


class Module:
    """A candidate that was loaded.

    Attributes:
        failed: status and message of what its last call raised, and that exception; None before that.
    """

    def __init__(self, calls: int, answers: int, source: bytes, most: int) -> None:
        """Have the candidate load `source`.

        Args:
            calls: descriptor to write calls to.
            answers: descriptor to read answers from.
            source: of the candidate.
            most: bytes of one answer.

        Raises:
            Gone: its process ended.
        """
        self._calls, self._answers, self._most = calls, answers, most
        self._arguments = Arguments()
        self.failed: tuple[str, str, BaseException | None] | None = None
        send(calls, source)
        found = self._answer()
        self._names = cast("dict[object, object]", found) if isinstance(found, dict) else {}

    def function(self, name: str) -> Function | None:
        """The function of that name, None where there is none."""
        return Function(self, name) if name in self._names and self._names[name] is None else None

    def globals(self) -> dict[str, object]:
        """Constants and functions by name."""
        return {
            name: Function(self, name) if value is None else value
            for name, value in self._names.items()
            if isinstance(name, str)
        }

    def call(self, name: str, arguments: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """Call a function and wait for its answer.

        Raises:
            Gone: the candidate's process ended.
            Unsendable: an argument is nothing that can be sent.
            Exception: of the class that it raised, where Python has that class.
        """
        try:
            call = self._arguments.pack(name, arguments, named)
        except (TypeError, ValueError) as error:
            raise Unsendable(str(error)) from None
        send(self._calls, call)
        found = self._answer()
        if self.failed is not None:
            raise cast(BaseException, self.failed[2])
        return found

    def _answer(self) -> object:
        self.failed = None
        try:
            answer = receive(self._answers, self._most)
            if answer[:1] == ANSWER:
                return decode(answer[1:])
            if answer[:1] != FAILURE:
                raise ValueError("it is neither")
            status, message, name = json.loads(answer[1:])
            if status not in claims.FAILURES or not isinstance(message, str):
                raise ValueError("it has no status")
        except (ValueError, RecursionError, TypeError) as error:
            status, message, name = "invalid_solution", f"its answer to a call is none: {error}", ""
        kind = getattr(builtins, str(name), None)
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            kind = HeuristicError
        self.failed = status, message, _raised(kind, message)
        return None


def _raised(kind: type[Exception], message: str) -> Exception:
    try:
        return kind(message)
    except Exception:  # noqa: BLE001 - UnicodeDecodeError wants five arguments
        return HeuristicError(message)


class Function:
    """One function of the candidate, to be called like any.

    Attributes:
        __globals__: constants and functions of its module, by name.
    """

    def __init__(self, module: Module, name: str) -> None:
        self._module = module
        self.__name__ = name

    def __call__(self, *arguments: object, **named: object) -> Any:
        """Call it in the candidate's process."""
        return self._module.call(self.__name__, arguments, named)

    @property
    def __globals__(self) -> dict[str, object]:
        return self._module.globals()
