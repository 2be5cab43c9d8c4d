"""Programs of a line, by chance, out of all that a vetted source may name and much that it may not."""

from __future__ import annotations

import random

from coevo.sandbox.allowances import BUILTINS, ITERTOOLS, MATH, METHODS, NUMPY

ATOMS = (
    "x", "x", "n", "l", "l", "d", "s", "m", "t", "u", "None", "1", "0", "2.5", "True", "[1, 2]", "{1: 2}", "...",
    "np.pi", "range(3)", "int", "np.float64", "[(t, u)]",
)  # fmt: skip
REFUSED = ("np.add", "np", "g", "lambda a: a", "'k'", "bool")
KEYWORDS = (
    "axis", "dtype", "key", "start", "kind", "default", "reverse", "keepdims", "ddof", "k", "copy", "out", "where",
    "object", "a",
)  # fmt: skip
OPERATORS = ("+", "-", "*", "/", "%", "//", "@", "&", "|", "^", "==", "<", "in", "and", "or")
ATTRIBUTES = ("real", "imag", "T", "shape", "size", "ndim", "dtype", "base", "flat", "keys")
SOURCE = """import numpy as np
import math
import itertools
def g(a=1, *b, c=2): return a
def h(*b): return b
def f(x, n, l, d, s, m, t, u):
    return {}
"""


def program(rng: random.Random) -> str:
    """A source whose function `f` takes an array, a number, a list, a dict, a set, a matrix and two more."""
    return SOURCE.format(_expression(rng, 2 + rng.randrange(2)))


def _expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.18:
        return rng.choice(ATOMS if rng.random() < 0.97 else REFUSED)
    if rng.random() < 0.6:
        return _call(rng, depth - 1)
    a, b, c = (_expression(rng, depth - 1) for _ in range(3))
    return rng.choice((
        f"({a} {rng.choice(OPERATORS)} {b})", f"({a})[{b}]", f"({a}).{rng.choice(ATTRIBUTES)}", f"[{a} for y in {b}]",
        f"({a} if {b} else {c})", f"[{a}, {b}]", f"{{{a}: {b}}}", f"(z := {a})", f"({a}, *{b})", f"{{{a}}}",
    ))  # fmt: skip


def _call(rng: random.Random, depth: int) -> str:
    name = rng.choice((
        *(f"np.{rng.choice(tuple(NUMPY))}" for _ in range(4)), f"math.{rng.choice(MATH)}", rng.choice(BUILTINS),
        rng.choice(("np.float64", "np.linalg.norm", "np.bool_", "g", "h", f"itertools.{rng.choice(ITERTOOLS)}")),
        *(f"({_expression(rng, depth)}).{rng.choice((*METHODS, 'astype'))}" for _ in range(2)),
    ))  # fmt: skip
    given = [
        rng.choice(("",) * 19 + ("*",)) + _expression(rng, depth) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3)))
    ]
    given += [f"{rng.choice(KEYWORDS)}={_expression(rng, depth)}" for _ in range(rng.choice((0, 0, 0, 1, 2)))]
    return f"{name}({', '.join(given)})"
