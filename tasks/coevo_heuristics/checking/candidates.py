"""The candidates that a check sends, made from the problem's own hole.

Most are answers: they go through the parser and the template as a model's would. A forged one is no work of `solve`:
the seed's solutions are changed before they are valued, so that only `objective` stands against them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from coevo.sandbox import Limits
from coevo_heuristics.checking.rows import State
from coevo_heuristics.rendering import Template
from coevo_heuristics.syntax import parse_module

_SEED = "coevo_check_seed"
ENDLESS_SECONDS = 1.0
"""CPU time that an endless candidate gets, unless the problem gives less."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is sent, and the status that it should end with.

    Attributes:
        text: an answer; empty if solutions are forged.
        forge: makes another solution of one of the seed's, given as JSON text.
        accepted: the state of a row where it was accepted and gained nothing over the seed.
        endless: it runs until it is stopped.
    """

    name: str
    text: str
    expected: str
    forge: Callable[[str], object] | None = None
    accepted: State = "failure"
    endless: bool = False


def answers(template: Template, limits: Limits) -> list[Candidate]:
    """The answers for one hole: a crashing one, an endless one, a memory hog, not-a-number, a wrong type."""
    if template.kind == "expression":
        seed, size = template.seed, 2 * limits.memory_mb << 20
        texts = {
            "crash": f"({seed}) * (1 // 0)",
            "endless": "sum(1 for _ in iter(int, 1))",
            "memory": f"({seed}) + 0 * len(bytearray({size}))",
            "nan": f"({seed}) * float('nan')",
            "type": "None",
        }
    else:
        hog = f"hog = [bytes([1]) * (1 << 24) for _ in range({2 * limits.memory_mb // 16 + 1})]"
        wrecked = (
            f"import numpy\n    shape = numpy.shape({_SEED}(ARGUMENTS))\n"
            "    return numpy.full(shape, numpy.nan) if shape else float('nan')"
        )
        texts = {
            "crash": _function(template, "raise RuntimeError('sent by coevo check')"),
            "endless": _function(template, "while True:\n        pass"),
            "memory": _function(template, f"{hog}\n    return {_SEED}(ARGUMENTS) if hog else None"),
            "nan": _function(template, wrecked),
            "type": _function(template, "return None"),
        }
    kind = template.kind
    return [
        Candidate(f"{kind} that raises an error", texts["crash"], "exception"),
        Candidate(f"{kind} that never ends", texts["endless"], "timeout", endless=True),
        Candidate(f"{kind} that takes twice the memory", texts["memory"], "out_of_memory"),
        Candidate(f"{kind} that gives NaN", texts["nan"], "non_finite"),
        # Any refusal will do: where the problem wants a number, None is an exception in one and invalid in another.
        Candidate(f"{kind} that gives None", texts["type"], ""),
    ]


def _function(template: Template, body: str) -> str:
    """A function of the entry's name with `body`, after the seed under the name `_SEED`."""
    tree = parse_module(template.seed)
    entry = template.entry.name
    arguments: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            arguments = [a.arg for a in [*node.args.posonlyargs, *node.args.args]]
            node.name = _SEED
        elif isinstance(node, ast.Name) and node.id == entry:
            node.id = _SEED
    listed = ", ".join(arguments)
    code = f"{ast.unparse(tree)}\n\n\ndef {entry}({listed}):\n    {body.replace('ARGUMENTS', listed)}\n"
    return f"```python\n{code}```"


# Solutions are changed as the JSON that they travel as, so that their type does not matter.
_NUMBER = re.compile(r"-?\b[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\b|\btrue\b|\bfalse\b")


def _list(text: str) -> list[Any] | None:
    solution: Any = json.loads(text)
    return cast("list[Any]", solution) if isinstance(solution, list) else None


def _emptied(text: str) -> object:
    solution: Any = json.loads(text)
    return [] if solution is None else type(solution)()


def _halved(text: str) -> object:
    solution = _list(text)
    return json.loads(text) if solution is None else solution[: len(solution) // 2]


def _counted(text: str) -> object:
    solution = _list(text)
    flat = solution and all(type(one) is int for one in solution)
    return list(range(max(solution) + 1)) if solution and flat else json.loads(text)


def _doubled(text: str) -> object:
    solution = _list(text)
    return [json.loads(text)] * 2 if solution is None else solution + solution


_CHANGES: tuple[tuple[str, Callable[[str], object], State], ...] = (
    ("solution that is null", lambda _: None, "failure"),
    # What is empty, cut or complete may be a solution, if a bad one; it should not pay.
    ("solution that is empty", _emptied, "ok"),
    ("solution without its second half", _halved, "ok"),
    ("solution that is 0, 1, 2 and so on", _counted, "ok"),
    # A number that is none should be refused, even where it does not pay.
    ("solution with everything twice", _doubled, "warning"),
    ("solution whose first number is -1", lambda text: json.loads(_NUMBER.sub("-1", text, count=1)), "warning"),
    ("solution whose numbers are 10**9", lambda text: json.loads(_NUMBER.sub("1000000000", text)), "failure"),
)


def forgeries() -> list[Candidate]:
    """Solutions that are infeasible, or at best no better than the seed's."""
    return [Candidate(name, "", "invalid_solution", change, accepted) for name, change, accepted in _CHANGES]
