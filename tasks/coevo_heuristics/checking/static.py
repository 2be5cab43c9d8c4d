"""What can be seen without running a candidate: holes, splits, references."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from coevo.errors import UserError
from coevo.sandbox import Author, AuthorError
from coevo_heuristics.checking.rows import Row
from coevo_heuristics.checking.trusted import told
from coevo_heuristics.problem import HoleKind, Problem
from coevo_heuristics.rendering import Template, load_template

_SUGGESTED = ("validation", "test")


def load_holes(problem: Problem) -> tuple[dict[HoleKind, Template], list[Row]]:
    """The template of every hole that has its marks, and a row for each hole."""
    templates: dict[HoleKind, Template] = {}
    rows: list[Row] = []
    for kind, table in problem.table.holes.items():
        try:
            templates[kind] = load_template(problem, kind)
        except UserError as error:
            rows.append(Row("failure", f"hole {kind}", str(error)))
        else:
            rows.append(Row("ok", f"hole {kind}", f"{table.template} has its hole and defines {problem.table.entry!r}"))
    return templates, rows


def check_splits(problem: Problem, author: Author) -> Iterator[Row]:
    """Every split: it is there, the same at each call, and shares no instance with another."""
    contents: dict[str, list[str] | None] = {}
    for name, actual in problem.table.splits.items():
        rows, contents[name] = _split(author, name, actual)
        yield from rows
    for name in _SUGGESTED:
        if name not in problem.table.splits:
            yield Row("warning", f"split {name}", "problem.toml names none; without it luck cannot be told from skill")
    for first, second in combinations(contents, 2):
        one, other = contents[first], contents[second]
        if one and other and (shared := len(set(one) & set(other))):
            yield Row("failure", f"splits {first} and {second}", f"share {shared} instances; draw from other seeds")
    told = [name for name, content in contents.items() if content]
    if len(told) > 1:
        yield Row("ok", "splits compared", f"{', '.join(told)}: instance by instance")
    if untold := [name for name, content in contents.items() if content is None]:
        yield Row("skipped", "splits compared", f"{', '.join(untold)}: missing, or their instances cannot be compared")


def _split(author: Author, name: str, actual: str) -> tuple[list[Row], list[str] | None]:
    called = f"instances({actual!r})"
    try:
        with author.session() as session:
            found = session.split(actual)
    except AuthorError as error:
        return [Row("failure", f"split {name}", str(error))], None
    if "error" in found:
        return [Row("failure", f"split {name}", f"{called} raised {found['error']}")], None
    content: list[str] | None = found["content"]
    besides = told(f"split {name}: {called}", found["noticed"])
    if not found["count"]:
        return [Row("failure", f"split {name}", f"{called} gives none"), *besides], None
    if content != found["again"]:
        said = f"{called} differ between two calls; draw them from a fixed seed"
        return [Row("failure", f"split {name}", said), *besides], None
    same = "" if content is None else ", the same at each call"
    return [Row("ok", f"split {name}", f"{called}: {found['count']}{same}"), *besides], content


def check_references(problem: Problem, author: Author) -> Iterator[Row]:
    """References: of a split that exists, none better than a proved one, and a baseline to beat."""
    table = problem.table
    sign = 1 if table.direction == "minimize" else -1
    word = "smaller" if sign > 0 else "larger"
    actual = {r.split: table.splits.get(r.split, r.split) for r in table.references}
    known: dict[str, bool] = dict.fromkeys(table.splits.values(), True)
    for split in dict.fromkeys(actual.values()):
        if split not in known:
            try:
                with author.session() as session:
                    known[split] = session.split(split).get("count", 0) > 0
            except AuthorError:
                known[split] = False  # the row below says it
    wrong = 0
    for r in table.references:
        if not known[actual[r.split]]:
            wrong += 1
            yield Row(
                "failure", f"reference {r.name}", f"belongs to split {r.split!r}, which evaluate.py does not have"
            )
        others = [o.value for o in table.references if o is not r and actual[o.split] == actual[r.split]]
        proved = [p for p in table.references if p.proved and actual[p.split] == actual[r.split]]
        if beaten := next((p for p in proved if sign * r.value < sign * p.value), None):
            wrong += 1
            said = f"{r.value} on {r.split!r} is better than {beaten.name} ({beaten.value}), which is said to be proved"
            said += f"; direction = {table.direction!r} means that {word} is better"
            yield Row("failure", f"reference {r.name}", said)
        elif r.baseline and others and all(sign * r.value < sign * value for value in others):
            wrong += 1
            found = "is better than every other reference of its split; is the direction right?"
            yield Row("warning", f"reference {r.name}", found)
        if r.baseline and r.value == 0:
            wrong += 1
            yield Row(
                "warning",
                f"reference {r.name}",
                "a baseline of 0 gives no scale; take a heuristic whose value is not 0",
            )
    if not any(r.baseline and actual[r.split] == table.splits["train"] for r in table.references):
        wrong += 1
        yield Row("warning", "references", "none of split 'train' is the baseline; a run cannot say what it has beaten")
    if not wrong:
        yield Row("ok", "references", f"{len(table.references)}, in direction {table.direction!r}")
