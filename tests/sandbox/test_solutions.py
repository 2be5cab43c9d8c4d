"""What a solution may be: it travels as JSON, and what would arrive as something else is refused in these words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coevo.sandbox import Limits, Sandbox

PROBLEM = """
def instances(split):
    return [0]


def solve(function, instance):
    return function()


def objective(solution, instance):
    return 0.0
"""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    file = tmp_path_factory.mktemp("problem") / "evaluate.py"
    file.write_text(PROBLEM)
    for folder in (file.parent, file.parent.parent):
        folder.chmod(0o755)  # the sandbox's user has to read it
    with Sandbox(file, "train", entry="answer", limits=Limits(cpu_seconds=60, wall_seconds=120), workers=1) as sandbox:
        yield sandbox


def answer(value: str) -> str:
    return f"import numpy as np\n\ndef answer():\n    return {value}\n"


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        ("(1, 2)", [1, 2]),
        ("{'a': (1, 'x')}", {"a": [1, "x"]}),
        ("[np.int64(3), np.float32(0.5), np.bool_(True)]", [3, 0.5, True]),
        ("np.arange(3)", [0, 1, 2]),
        ("'a { in text'", "a { in text"),
        ("None", None),
    ],
)
def test_what_json_holds_arrives(sandbox: Sandbox, value: str, arrives: object) -> None:
    outcome = sandbox.run(answer(value))
    assert (outcome.status, outcome.value) == ("ok", [arrives])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{1: 2}", "keys of a dictionary are text there, and one is of type int; return a list of [key, value] pairs"),
        ("[0, ({'a': {True: 1}},)]", "and one is of type bool"),
        ("{np.int64(1): 2}", "and one is of type numpy.int64; return a list of [key, value] pairs"),
        ("{(1, 2): 3}", "and one is of type tuple; return a list of [key, value] pairs"),
        ("{1, 2}", "a set is in it; return a sorted list"),
        ("frozenset()", "a frozenset is in it; return a sorted list"),
        ("1j", "a complex is in it; return lists, numbers and text"),
        ("b'a'", "a bytes is in it"),
    ],
)
def test_what_json_does_not_hold_is_refused_with_what_to_use_instead(sandbox: Sandbox, value: str, said: str) -> None:
    outcome = sandbox.run(answer(value))
    assert outcome.status == "invalid_solution"
    assert outcome.message.startswith("the solution does not fit in JSON: ")
    assert said in outcome.message
