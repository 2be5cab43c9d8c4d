"""A stranger's object, and what its methods gave: checked in one place, and named where it is not what was expected.

The core calls plugins only through a `Guard`. So nothing else in it has to know that an author may have forgotten a
bracket, and every such fault is one line that names the plugin, the method, what it gave and where.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeAlias

from coevo.errors import CoevoError, PluginError
from coevo.host.faults import message, told
from coevo.host.shapes import Wrong

Check: TypeAlias = Callable[..., Any]
"""Takes what a method gave and the arguments that it got; returns what is passed on, or raises `Wrong`."""


def _fault(error: Exception, arguments: tuple[Any, ...]) -> None:
    """What an exception is where a rule does not say otherwise: a fault of the plugin."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How a method is called.

    Attributes:
        check: of what it gives.
        passes: exceptions that are no fault and go on to the caller as they are. `Exception` where a failure of the
            method becomes data: then only what it gives can be wrong.
        is_async: whether it is awaited.
        own_task: whether that is in a task of its own: where it cancels the current task, it cancels only itself.
        turn: which error an exception of the method, with these arguments, is; None is a fault of the plugin.
    """

    check: Check
    passes: tuple[type[BaseException], ...] = ()
    is_async: bool = False
    own_task: bool = False
    turn: Callable[[Exception, tuple[Any, ...]], type[CoevoError] | None] = _fault


def anything(given: Any, *_: Any) -> Any:
    """The check of a method that may give what it likes."""
    return given


class Guard:
    """Behaves as the object inside; methods with a rule are checked.

    Everything else of it, attributes and further methods, is as it is, and what it lacks is lacking here too.
    """

    __slots__ = ("_guard_inner", "_guard_rules", "_guard_who")

    def __init__(self, inner: object, who: str, rules: Mapping[str, Rule]) -> None:
        """Takes an object.

        Args:
            inner: a plugin's.
            who: whose it is, such as `task 'mine'`.
            rules: by name of the method.
        """
        self._guard_inner, self._guard_who, self._guard_rules = inner, who, rules

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_guard_"):  # of a copy in the making, which has nothing inside yet
            raise AttributeError(name)
        try:
            value = getattr(self._guard_inner, name)
        except (AttributeError, CoevoError):
            raise
        except Exception as error:
            raise PluginError(f"{self._guard_who}: the attribute {name!r} raised {told(error)}") from error
        rule = self._guard_rules.get(name)
        return value if rule is None or not callable(value) else guarded(value, f"{self._guard_who}: {name}()", rule)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_guard_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._guard_inner, name, value)

    def __repr__(self) -> str:
        return repr(self._guard_inner)


def guarded(method: Callable[..., Any], who: str, rule: Rule) -> Callable[..., Any]:
    """`method` by a rule.

    Args:
        method: a plugin's.
        who: whose and which, such as `task 'mine': brief()`.
        rule: how it is called.
    """
    if not rule.is_async:

        @wraps(method)
        def call(*arguments: Any, **named: Any) -> Any:
            with _Faults(who, rule, arguments):
                given = method(*arguments, **named)
            return checked(given, who, rule, arguments)

        return call

    async def alone(awaited: Awaitable[Any], arguments: tuple[Any, ...]) -> Any:
        with _Faults(who, rule, arguments):
            return await awaited

    @wraps(method)
    async def wait(*arguments: Any, **named: Any) -> Any:
        with _Faults(who, rule, arguments):
            awaited = method(*arguments, **named)
        if not inspect.isawaitable(awaited):
            raise PluginError(f"{who} is no async function; write it as: async def")
        try:
            with _Faults(who, rule, arguments):
                given = await (asyncio.create_task(alone(awaited, arguments)) if rule.own_task else awaited)
        finally:
            if inspect.iscoroutine(awaited):  # a task that is cancelled before it begins leaves it as it is
                awaited.close()
        return checked(given, who, rule, arguments)

    return wait


def checked(given: Any, who: str, rule: Rule, arguments: tuple[Any, ...] = ()) -> Any:
    """What a method gave, if it is what was expected.

    Raises:
        PluginError: it is something else.
    """
    if not rule.is_async and inspect.iscoroutine(given):
        given.close()
        raise PluginError(f"{who} is an async function; write it as: def")
    try:
        return rule.check(given, *arguments)
    except Wrong as wrong:
        raise PluginError(f"{who} gave {str(wrong).strip()}") from None
    except RecursionError:
        raise PluginError(f"{who} gave something that is nested without an end") from None


class _Faults:
    """Turns what a method raises into a fault of its plugin."""

    __slots__ = ("_arguments", "_rule", "_who")

    def __init__(self, who: str, rule: Rule, arguments: tuple[Any, ...]) -> None:
        self._who, self._rule, self._arguments = who, rule, arguments

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, StopIteration) and Exception in self._rule.passes:
            # A future refuses to hold one, and whoever waits for it would wait for ever.
            raise RuntimeError(message(error)) from error
        if error is None or isinstance(error, (CoevoError, *self._rule.passes)):
            return
        if not isinstance(error, Exception):
            # A coroutine that is closed is told so by GeneratorExit; a task that is cancelled, by CancelledError.
            closes = isinstance(error, GeneratorExit) and self._rule.is_async
            if closes or isinstance(error, KeyboardInterrupt):
                return
            if isinstance(error, asyncio.CancelledError) and not self._cancels():
                return
            if Exception in self._rule.passes:
                raise RuntimeError(message(error)) from error
        turned = self._rule.turn(error, self._arguments) if isinstance(error, Exception) else None
        raise (turned or PluginError)(f"{self._who} raised {told(error)}") from error

    def _cancels(self) -> bool:
        """Whether nobody sent this `CancelledError`: whoever waits for what raised it would wait for ever."""
        task = asyncio.current_task() if self._rule.is_async else None
        return task is None or not task.cancelling()
