"""From an answer to an importable module: the template with its hole filled.

Both holes give a module with the same entry, so a scorer, a best file and a test need not know which hole
it came from.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from coevo.errors import UserError
from coevo_heuristics.parser import Entry
from coevo_heuristics.problem import HoleKind, Problem
from coevo_heuristics.pruning import bound_names
from coevo_heuristics.syntax import explain, parse_module

BEGIN, END = "# coevo: hole", "# coevo: end"


@dataclass(frozen=True, slots=True)
class Template:
    """A module around a hole.

    Attributes:
        kind: of the hole.
        source: the module with the seed in its hole.
        before, after: the module around it.
        seed: the answer that the template holds.
        entry: the function that the module defines.
    """

    kind: HoleKind
    source: str
    before: str
    after: str
    seed: str
    entry: Entry

    def render(self, answer: str) -> str:
        """The whole module for an answer."""
        if self.kind == "expression":
            return f"{self.before}{answer}{self.after}"
        future, body = _hoist(answer, self.before)
        head = _under_docstring(self.before, future)
        # Two blank lines around, whatever the model left.
        return f"{head.rstrip()}\n\n\n{body.strip()}\n" + (f"\n\n{self.after.strip()}\n" if self.after.strip() else "")


def load_template(problem: Problem, kind: HoleKind) -> Template:
    """Read the template of a hole.

    Raises:
        UserError: it cannot be read, does not parse, has no hole or no entry.
    """
    hole = problem.table.holes[kind]
    source = problem.read(hole.template)
    where = f"template {str(problem.folder / hole.template)!r}"
    try:
        tree = parse_module(source)
    except SyntaxError as error:
        raise UserError(f"{where} is no Python: {explain(error)}") from None
    name = problem.table.entry
    entry = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name), None)
    if entry is None:
        raise UserError(f"{where} defines no function {name!r}, the entry of problem.toml")
    before, seed, after = _cut(source, hole.replace, kind, where)
    outside = parse_module(before + after) if kind == "function" else tree
    names = {n for statement in outside.body for n in bound_names(statement)}
    arity = len(entry.args.posonlyargs) + len(entry.args.args)
    return Template(
        kind=kind, source=source, before=before, after=after, seed=seed, entry=Entry(name, arity, frozenset(names))
    )


def _cut(source: str, replace: str, kind: HoleKind, where: str) -> tuple[str, str, str]:
    if kind == "expression":
        if not replace:
            raise UserError(f"{where}: problem.toml gives no 'replace', the text that an expression replaces")
        if source.count(replace) != 1:
            raise UserError(f"{where} holds {replace!r} {source.count(replace)} times; expected it once")
        before, _, after = source.partition(replace)
        return before, replace.partition("#")[0].strip(), after
    if source.count(BEGIN) != 1 or source.count(END) != 1 or source.index(BEGIN) > source.index(END):
        raise UserError(f"{where} needs one line {BEGIN!r} and, after it, one line {END!r}")
    before, _, rest = source.partition(BEGIN)
    seed, _, after = rest.partition(END)
    return before, seed.strip(), after


def _hoist(answer: str, before: str) -> tuple[list[str], str]:
    """The `__future__` imports of an answer, and the rest without imports that the template has."""
    given = {ast.unparse(n) for n in parse_module(before).body if isinstance(n, ast.Import | ast.ImportFrom)}
    lines = answer.split("\n")
    statements = parse_module(answer).body
    shared = [n.lineno for n in statements] + [n.end_lineno for n in statements if n.end_lineno != n.lineno]
    future: list[str] = []
    for node in statements:
        end = node.end_lineno or node.lineno
        if not isinstance(node, ast.Import | ast.ImportFrom) or shared.count(node.lineno) > 1 or shared.count(end) > 1:
            continue  # no import, or not alone on its lines
        text = ast.unparse(node)
        is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if is_future or text in given:
            lines[node.lineno - 1 : end] = [""] * (end - node.lineno + 1)
        if is_future and text not in given:
            future.append(text)
    return future, "\n".join(lines)


def _under_docstring(before: str, future: list[str]) -> str:
    if not future:
        return before
    body = parse_module(before).body
    first = body[0] if body else None
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    at = (first.end_lineno or 0) if first is not None and has_docstring else 0
    lines = before.split("\n")
    return "\n".join([*lines[:at], *([""] if at else []), *future, *lines[at:]])
