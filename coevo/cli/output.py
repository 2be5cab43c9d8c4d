"""What commands print: plain text and JSON on stdout."""

from __future__ import annotations

import json
import math
from typing import Any

from coevo.machine.streams import standard_output
from coevo.records import Json


def emit(text: str) -> None:
    """Print a text."""
    print(text, file=standard_output(), flush=True)


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
