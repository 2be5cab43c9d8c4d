"""Whatever a vetted source computes is a number, an array of numbers or a container of such."""

from __future__ import annotations

import itertools
import random
import warnings
from typing import Any

import numpy as np
import pytest

from coevo.sandbox.vetting import namespace, vetted
from tests.sandbox.random_programs import program

PROGRAMS = 6_000
PLAIN = (int, float, complex, bool, type(None), type(...), np.generic, range)


def strangers(value: Any, texts: bool, depth: int = 6) -> list[str]:
    """Types in a value that are none of these; texts only where some were given."""
    if isinstance(value, str | np.str_):
        return [] if texts else ["text"]
    if isinstance(value, PLAIN) or depth == 0:
        return []
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return [] if value.dtype.kind in "biufc" or (texts and value.dtype.kind == "U") else [str(value.dtype)]
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, type) or not hasattr(value, "__iter__"):
        return [repr(value)]
    return [found for each in itertools.islice(value, 20) for found in strangers(each, texts, depth - 1)]


@pytest.mark.parametrize("texts", [False, True])
def test_no_value_is_a_text_a_type_or_a_function(texts: bool) -> None:
    rng, ran = random.Random(20), 0
    more = ("O", "b") if texts else (5, 6)
    for _ in range(PROGRAMS):
        source = program(rng)
        tree = vetted(source.encode())
        if tree is None:
            continue
        names = namespace()
        arguments = (np.arange(4.0), 2, [1, 2, 3], {1: 2}, {1, 2}, np.eye(2), *more)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(compile(tree, "candidate", "exec"), names)
                found = strangers(names["f"](*arguments), texts)
        except Exception:  # noqa: BLE001 - most make no sense, and these have no value
            continue
        assert found == [], source
        ran += 1
    assert ran > PROGRAMS // 20
