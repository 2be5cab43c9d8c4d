"""What commands print: plain text and JSON on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from coevo.records import Json

_kept: list[TextIO] = []


@contextmanager
def reserved() -> Generator[None]:
    """Keep standard output for what is emitted: what else prints, a plugin or the author of a problem, is on stderr."""
    _kept.append(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _kept.pop()


def emit(text: str) -> None:
    """Print a text."""
    print(text, file=_kept[-1] if _kept else None, flush=True)


def emit_json(value: Json) -> None:
    """Print strict JSON: a number that JSON cannot hold becomes null."""
    emit(json.dumps(_finite(value), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}  # type: ignore[misc]
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]  # type: ignore[misc]
    return value
