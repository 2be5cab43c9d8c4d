"""Keeps of a module what its entry needs: imports, helpers and constants, but no example calls.

Models like to end with a demonstration (`nodes = [...]; print(choose(nodes))`). Run in the sandbox it costs
time or fails on names that exist in no scorer, and shown to a model it invites more of the same.
"""

from __future__ import annotations

import ast

from coevo_heuristics.syntax import global_names, imported_names, parse_module


def keep_needed(source: str, entry: str) -> str:
    """`source` without the top-level statements that function `entry` does not need.

    Text is kept as written, comments inside statements included. Star imports and `__future__` stay.
    """
    tree = parse_module(source)
    lines = source.split("\n")
    last = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    spans = [_span(statement) for statement in tree.body]
    try:
        uses = [global_names("\n".join(lines[first - 1 : end]))[0] for first, end in spans]
    except SyntaxError:  # a statement that starts in the middle of a line, after one of several lines
        return source
    needed = {entry}
    kept: set[int] = set()
    grown = True
    while grown:
        grown = False
        for i, statement in enumerate(tree.body):
            if i not in kept and _wanted(statement, uses[i], needed, entry, last):
                kept.add(i)
                needed |= uses[i]
                grown = True
    parts: list[str] = []
    written = 0
    for first, end in (spans[i] for i in sorted(kept)):
        if end <= written:  # several statements on one line
            continue
        # As many blank lines as the model left, two at most, and none at the top.
        blank = min(2, first - written - 1) if parts else 0
        parts += [""] * blank + lines[max(first - 1, written) : end]
        written = end
    return "\n".join(parts).strip("\n")


def _wanted(
    statement: ast.stmt, uses: set[str], needed: set[str], entry: str, last: dict[str, ast.FunctionDef]
) -> bool:
    if isinstance(statement, ast.ImportFrom) and (
        statement.module == "__future__" or any(alias.name == "*" for alias in statement.names)
    ):
        return True
    bound = bound_names(statement)
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return statement.name in needed and last.get(statement.name, statement) is statement
    if entry in bound or entry in uses:
        return False  # a demonstration, or a second name for the entry
    return bool(bound & needed)


def _span(statement: ast.stmt) -> tuple[int, int]:
    first = statement.lineno
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        first = min([first, *(decorator.lineno for decorator in statement.decorator_list)])
    return first, statement.end_lineno or first


def bound_names(statement: ast.stmt) -> set[str]:
    """The module-level names that `statement` binds or changes; rather too many than too few."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    names: set[str] = set()
    acts = isinstance(statement, ast.Expr | ast.For | ast.If | ast.With)
    for node in ast.walk(statement):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names.update(imported_names(node))
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            names |= _root(node)
        elif acts and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            names |= _root(node.func)  # TABLE.append(1), np.random.seed(0)
    return names


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()
