"""What the author's own functions do besides, in a run's process for them and in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from coevo.sandbox import Author, AuthorError, Evaluator
from coevo_heuristics.checking.rows import Row
from coevo_heuristics.rendering import Template

# Appended to the seed's module, so that it runs where a candidate does.
_WATCH = """

import sys as _sys

from coevo.sandbox.fingerprints import fingerprint as _fingerprint


def _watched(honest):
    count = [0]

    def solve(function, instance):
        before = _fingerprint(instance)
        solution = honest(function, instance)
        if before is not None and _fingerprint(instance) != before:
            raise RuntimeError(f"CHANGES {count[0]}")
        count[0] += 1
        return solution

    return solve


for _name, _module in list(_sys.modules.items()):
    if _name.startswith("coevo_problem_"):
        _module.solve = _watched(_module.solve)
"""


def check_loading(author: Author) -> list[Row]:
    """What the import of evaluate.py does besides."""
    return [row for what, noticed in author.noticed.items() for row in told(f"{what} of evaluate.py", noticed)]


def told(what: str, noticed: Sequence[str]) -> list[Row]:
    """Rows for what a function does besides, one for each kind: `noticed` begins with the word that says which."""
    kinds: dict[str, list[str]] = {}
    for said in noticed:
        kinds.setdefault(said.split()[0].rstrip(":"), []).append(said)
    return [
        Row("warning", f"{what} {kind}", "; ".join(f"it {said}" for said in every)) for kind, every in kinds.items()
    ]


def check_functions(evaluator: Evaluator, template: Template) -> Iterator[Row]:
    """`objective` and `bound` on the seed's solutions, `solve` with the seed; nothing where the seed fails.

    Rows are of what should be otherwise, and one says that all is well.
    """
    outcome = evaluator.sandbox.run(template.source)
    if outcome.status != "ok":
        return
    solutions = cast("list[object]", outcome.value)
    rows: list[Row] = []
    try:
        with evaluator.author.session() as session:
            found = session.examine(solutions)
        with evaluator.author.session() as session:
            first = session.values(0, solutions)
            # Another child, so that only what comes from outside can differ.
        with evaluator.author.session() as session:
            second = session.values(0, solutions)
    except AuthorError as error:
        yield Row("failure", "objective", str(error))
        return
    if first != second:
        said = "gives other values for the same solutions in another process; it must depend on its arguments alone"
        rows.append(Row("failure", "objective again", said))
    for name, noticed in found.items():
        rows += told(name, noticed)
    watched = evaluator.sandbox.run(template.source + _WATCH)
    _, changes, index = watched.message.partition("CHANGES ")
    if changes:
        said = f"it, or the seed that it calls, changes instance {index.split()[0]}; copy what it changes, because "
        said += "`objective` values the solution by the instance as it was"
        rows.append(Row("warning", "solve changes", said))
    yield from rows
    if not rows:
        yield Row("ok", "evaluate.py and its functions", "they leave instances and process as they were")
