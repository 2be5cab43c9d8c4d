import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo_heuristics.canonical import code_key

BASE = "def f(x, y):\n    total = x + 2 * y\n    return [total for i in range(3) if i > 1]"


@pytest.mark.parametrize(
    "same",
    [
        'def f(x, y):\n    """Say it."""\n    total = x + 2 * y  # why\n\n    return [total for i in range(3) if i>1]',
        "def f(x, y):\n    t = (x + (2 * y))\n    return [t for k in range(3) if (k > 1)]",
        "# top\ndef f( x,y ):\n  total=x+2*y\n  return [total for i in range(3) if i>1]\n",
        "def f(a, b):\n    total = a + 2 * b\n    return [total for i in range(3) if i > 1]",
        "def f(y, x):\n    i = y + 2 * x\n    return [i for total in range(3) if total > 1]",
    ],
)
def test_spelling_does_not_count(same: str) -> None:
    assert code_key(same) == code_key(BASE)


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace("2", "3"),
        BASE.replace("2", "2.0"),
        BASE.replace("2 * y", "2 / y"),
        BASE.replace("x + 2 * y", "2 * y + x"),
        BASE.replace("x + 2 * y", "y + 2 * x"),
        BASE.replace("i > 1", "i >= 1"),
        BASE.replace("range", "reversed"),
        BASE.replace("[total", "(total").replace("1]", "1)"),
        BASE.replace("def f", "def g"),
        BASE.replace("total for", "i for"),
    ],
)
def test_everything_else_does(other: str) -> None:
    assert code_key(other) != code_key(BASE)


def differ(a: str, b: str) -> bool:
    return code_key(a) != code_key(b)


def test_scopes_are_python_s_own() -> None:
    assert differ("def f(x, y=x): return y", "def f(z, y=z): return y")
    assert differ("def f(x): return [x for x in y]", "def f(x): return [x for x in z]")
    assert differ("def f(a): return [b for c in a]", "def f(a): return [c for c in a]")
    assert not differ("def f(x): return [x for x in x]", "def f(y): return [z for z in y]")
    assert not differ("def f(a):\n def g(b): return a + b\n return g", "def f(p):\n def h(q): return p + q\n return h")
    assert differ("def f(a):\n def g(b): return a + b\n return g", "def f(p):\n def h(q): return q + q\n return h")
    assert not differ("def f(a): return sorted(a, key=lambda b: -b)", "def f(c): return sorted(c, key=lambda d: -d)")
    assert not differ(
        "def f(a):\n try:\n  import math as m\n  return m.sqrt(a)\n except E as e:\n  return e",
        "def f(b):\n try:\n  import math as n\n  return n.sqrt(b)\n except E as x:\n  return x",
    )
    assert differ("def f():\n import math\n return math", "def f():\n import cmath\n return cmath")
    assert not differ(
        "def f(a):\n match a:\n  case [b, *c]: return b\n  case {'k': d, **e}: return d",
        "def f(p):\n match p:\n  case [q, *r]: return q\n  case {'k': s, **t}: return s",
    )
    assert not differ("def f(a): return [(b := c) for c in a] + [b]", "def f(p): return [(q := r) for r in p] + [q]")


def test_names_that_can_be_seen_from_outside_count() -> None:
    helper = "def h(x): return x\ndef f(y): return h(x=y)"
    assert differ(helper, helper.replace("h(x):", "h(z):").replace("return x\n", "return z\n").replace("x=y", "z=y"))
    assert differ("def f(a): return locals()", "def f(b): return locals()")
    assert differ("def f(a): return eval('a')", "def f(b): return eval('a')")
    assert differ("class A:\n x = 1\ndef f(a): return a", "class A:\n x = 1\ndef f(b): return b")
    assert differ("X = 1\ndef f(a): return X", "Y = 1\ndef f(a): return Y")
    assert code_key("def f(a): return a", "f") != code_key("def f(b): return b", "f")
    assert code_key("def f(a):\n c = a\n return c", "f") == code_key("def f(a):\n d = a\n return d", "f")


def test_a_tree_too_deep_to_walk_still_has_a_key() -> None:
    deep = "x = " + " + ".join(["1"] * 900)
    assert len(code_key(deep)) == 16
    assert differ(deep, deep + " + 2")


NAMES = st.sampled_from(["a", "b", "c"])
EXPRESSIONS = st.recursive(
    st.one_of(NAMES, st.sampled_from(["1", "1.0", "True"])),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(NAMES, inner, inner).map(lambda t: f"[{t[1]} for {t[0]} in {t[2]}]"),
        st.tuples(NAMES, inner).map(lambda t: f"(lambda {t[0]}: {t[1]})"),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_a_key_ignores_formatting(expression: str) -> None:
    source = f"def f(a, b, c):\n    return {expression}\n"
    assert code_key(source) == code_key(ast.unparse(ast.parse(source)))


@given(EXPRESSIONS, st.permutations(["a", "b", "c"]))
def test_renaming_all_locals_at_once_keeps_the_key(expression: str, order: list[str]) -> None:
    source = f"def f(a, b, c):\n    return {expression}\n"
    table = dict(zip("abc", order, strict=True))
    renamed = re.sub(r"\b[abc]\b", lambda match: table[match[0]], source)
    assert code_key(source) == code_key(renamed)
