"""The candidate's functions as `solve` sees them.

Each call goes to the candidate's process and waits there; of a source that is vetted (`coevo.sandbox.vetting`) it is
made here. Either way arguments and answers are copies, and what fails is told in the same words.
"""

from __future__ import annotations

import ast
import builtins
import json
from collections.abc import Mapping
from typing import Any, Protocol, cast

from coevo.sandbox import claims, vetting
from coevo.sandbox.answers import UnanswerableError, as_sent, decode
from coevo.sandbox.calls import Arguments, Copies, receive, send
from coevo.sandbox.player import ANSWER, FAILURE, FILE, message_of, names_of, status_of

_PLACES = range(1 << 16)


class HeuristicError(Exception):
    """The candidate's function raised what is no exception of Python's own."""


class UnsendableError(Exception):
    """The problem gives its function what does not go to another process."""


class Module(Protocol):
    """A candidate that was loaded.

    Attributes:
        names: of its functions, with None, and of its constants, with their values.
        failed: status and message of what its last call raised, and that exception; None before that.
    """

    names: Mapping[str, object]
    failed: tuple[str, str, BaseException] | None

    def call(self, name: str, arguments: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """Call a function and wait for its answer.

        Raises:
            GoneError: the candidate's process ended.
            UnsendableError: an argument is nothing that can be sent.
            Exception: of the class that it raised, where Python has that class.
        """
        ...


class Remote:
    """A candidate in a process of its own."""

    def __init__(self, calls: int, answers: int, source: bytes, most: int) -> None:
        """Have the candidate load `source`.

        Args:
            calls: descriptor to write calls to.
            answers: descriptor to read answers from.
            source: of the candidate.
            most: bytes of one answer.

        Raises:
            GoneError: its process ended.
        """
        self._calls, self._answers, self._most = calls, answers, most
        self._arguments = Arguments()
        self.failed: tuple[str, str, BaseException] | None = None
        send(calls, source)
        found = self._answer()
        pairs = cast("dict[object, object]", found).items() if isinstance(found, dict) else ()
        self.names: Mapping[str, object] = {name: value for name, value in pairs if isinstance(name, str)}

    def call(self, name: str, arguments: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """As `Module.call`."""
        try:
            call = self._arguments.pack(name, arguments, named)
        except (TypeError, ValueError) as error:
            raise UnsendableError(str(error)) from None
        send(self._calls, call)
        found = self._answer()
        if self.failed is not None:
            raise self.failed[2]
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


class Local:
    """A candidate whose source is vetted, in this process."""

    def __init__(self, tree: ast.Module) -> None:
        """Run its module.

        Args:
            tree: of `coevo.sandbox.vetting.vetted`.
        """
        self.names: Mapping[str, object] = {}
        self.failed: tuple[str, str, BaseException] | None = None
        self._globals = vetting.namespace()
        self._copies = Copies()
        try:
            code = compile(tree, FILE, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            self.failed = "syntax", message_of(error), error
            return
        try:
            exec(code, self._globals)
        except Exception as error:  # noqa: BLE001 - the candidate's
            self.failed = status_of(error), message_of(error), error
        self.names = dict(names_of(self._globals))

    def call(self, name: str, arguments: tuple[object, ...], named: Mapping[str, object]) -> Any:
        """As `Module.call`."""
        self.failed = None
        try:
            given = map(self._copies.take, _PLACES, arguments)
            if named:
                named = {key: self._copies.take(key, value) for key, value in named.items()}
            given = tuple(given)
        except TypeError as error:
            raise UnsendableError(str(error)) from None
        try:
            return as_sent(self._globals[name](*given, **named))
        except UnanswerableError as error:
            self.failed = "invalid_solution", str(error), error
            raise
        except Exception as error:
            self.failed = status_of(error), message_of(error), error
            raise


def function(module: Module, name: str) -> Function | None:
    """A function of a candidate, None where it has none of that name."""
    return Function(module, name) if name in module.names and module.names[name] is None else None


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
        names = self._module.names.items()
        return {name: Function(self._module, name) if value is None else value for name, value in names}
