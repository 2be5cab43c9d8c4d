"""How a worker's exceptions reach the pool: with their class and message, not as Ray would wrap them."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeAlias

from coevo.errors import CheckFailedError, CoevoError, RunError, UserError


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call of a worker ended with.

    Attributes:
        pickled: the exception; empty where it cannot be pickled.
        kind: the class to use where it cannot be made again here.
        message: its text.
        trace: where it was raised.
    """

    pickled: bytes
    kind: type[Exception]
    message: str
    trace: str


Answer: TypeAlias = tuple[Any, Failure | None]
"""What a call returned, or what it failed of."""


async def answered(work: Awaitable[Any]) -> Answer:
    """Await `work`; its exceptions become data, so that Ray's own mean that the process is gone."""
    try:
        return await work, None
    except Exception as error:  # noqa: BLE001 - raised again by `unpack`, in the pool
        return None, failure_of(error)


def failure_of(error: Exception) -> Failure:
    """The exception as it crosses."""
    kind = next((cls for cls in (UserError, CheckFailedError, RunError) if isinstance(error, cls)), RuntimeError)
    said = str(error)
    message = said if issubclass(kind, CoevoError) else f"{type(error).__name__}: {said}"
    try:
        pickled = pickle.dumps(error)
    except Exception:  # noqa: BLE001 - whatever it holds may refuse in its own way
        pickled = b""
    return Failure(pickled, kind, message, "".join(traceback.format_exception(error)))


def unpack(answer: Answer, where: str) -> Any:
    """What was returned; what was raised is raised.

    Args:
        answer: of a worker.
        where: which worker, for the note on an exception that is no `CoevoError`.
    """
    value, failure = answer
    if failure is None:
        return value
    error = _rebuilt(failure)
    if not isinstance(error, CoevoError):
        error.add_note(f"raised in {where}:\n{failure.trace}")
    raise error


def _rebuilt(failure: Failure) -> Exception:
    try:
        error = pickle.loads(failure.pickled)
    except Exception:  # noqa: BLE001 - its class may not be here, or not take what it was made from
        return failure.kind(failure.message)
    return error if isinstance(error, Exception) else failure.kind(failure.message)
