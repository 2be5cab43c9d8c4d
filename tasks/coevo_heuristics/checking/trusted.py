"""What the author's own functions do besides, in a run's process for them and in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from coevo.sandbox import Author, AuthorError, Evaluator
from coevo_heuristics.checking.rows import Row
from coevo_heuristics.rendering import Template


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
    watched = evaluator.sandbox.run(template.source, watch=True)
    _, changes, index = watched.message.partition("CHANGES ")
    if changes:
        said = f"it changes instance {index}; copy what it changes, because "
        said += "`objective` values the solution by the instance as it was"
        rows.append(Row("warning", "solve changes", said))
    yield from rows
    if not rows:
        yield Row("ok", "evaluate.py and its functions", "they leave instances and process as they were")
