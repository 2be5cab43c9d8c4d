"""`code_key`: one key for all spellings of the same program.

Ignored: formatting, comments, docstrings, and the names of what is local to a function. Everything that can
change the outcome counts: constants with their type, operators, the order of statements and operands, names of
modules, attributes and globals. Two programs of one key therefore score the same, so a score may be reused;
two that behave alike may still have two keys.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from coevo_heuristics.syntax import parse_module

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension: TypeAlias = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_IGNORED_FIELDS = frozenset({"ctx", "type_comment", "kind", "type_ignores"})
_SCOPE_RULES = (ast.ClassDef, ast.Global, ast.Nonlocal)
_REVEALING = frozenset(
    {"locals", "vars", "dir", "eval", "exec", "globals", "compile", "inspect", "sys", "signature", "getsource"}
    | {"__doc__", "__code__", "__annotations__", "__kwdefaults__", "__name__"}
)


def code_key(source: str, entry: str = "") -> str:
    """16 hex digits over the canonical form of `source`.

    Args:
        source: a module.
        entry: the function that is called from outside, perhaps with arguments by name: it keeps theirs.

    Raises:
        SyntaxError: `source` does not parse.
    """
    tree = parse_module(source)
    try:
        text = _Writer(tree, entry).node(tree, None)
    except RecursionError:
        text = source  # too deep to walk: its own spelling is still a valid, if narrow, key
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


class _Scope:
    """The local names of a function or comprehension, numbered as they are met."""

    def __init__(self, names: set[str], outer: _Scope | None) -> None:
        self.names = names
        self.outer = outer
        self.depth: int = outer.depth + 1 if outer else 0
        self.numbers: dict[str, int] = {}


def _resolve(name: str, scope: _Scope | None) -> str:
    while scope is not None:
        if name in scope.names:
            number = scope.numbers.setdefault(name, len(scope.numbers))
            return f"{scope.depth}.{number}"  # starts with a digit, which no identifier does
        scope = scope.outer
    return name


class _Writer:
    """Writes a tree as text, with numbers for local names where that is safe.

    A program that can read its own names keeps them, and so does one with a class, `global` or `nonlocal`,
    whose scope rules are not worth the code; a parameter that some call passes by name keeps its name.
    """

    def __init__(self, tree: ast.Module, entry: str) -> None:
        self.entry = entry
        words: set[str] = set()
        self.keywords: set[str] = set()
        self.keep = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                words.add(node.id)
            elif isinstance(node, ast.Attribute):
                words.add(node.attr)
            elif isinstance(node, ast.alias):
                words.update(node.name.split("."))
            elif isinstance(node, ast.keyword):
                self.keywords.add(node.arg or "")
            elif isinstance(node, _SCOPE_RULES):
                self.keep = True
        # `f(**options)` passes names that are not in the source.
        self.keep = self.keep or "" in self.keywords or not words.isdisjoint(_REVEALING)

    def node(self, node: ast.AST, scope: _Scope | None) -> str:
        """`node` as text; `scope` is where it stands."""
        if isinstance(node, _Function):
            return self._function(node, scope)
        if isinstance(node, _Comprehension):
            return self._comprehension(node, scope)
        return self._fields(node, scope, {})

    def _fields(self, node: ast.AST, scope: _Scope | None, special: dict[str, str]) -> str:
        parts: list[str] = []
        for field, value in ast.iter_fields(node):
            if field in special:
                parts.append(f"{field}={special[field]}")
            elif field not in _IGNORED_FIELDS and value is not None and value != []:
                parts.append(f"{field}={self._value(node, field, value, scope)}")
        return f"{type(node).__name__}({','.join(parts)})"

    def _value(self, node: ast.AST, field: str, value: object, scope: _Scope | None) -> str:
        if isinstance(value, list):
            items = _body(node) if field == "body" and not self.keep else value  # pyright: ignore[reportUnknownVariableType]
            return "[" + ",".join(self._value(node, "", item, scope) for item in items) + "]"  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if isinstance(value, ast.AST):
            return self.node(value, scope)
        if isinstance(value, str) and _binds_or_reads(node, field):
            return _resolve(value, scope)
        if isinstance(node, ast.alias) and field == "name" and node.asname is None:
            # `import numpy` in a function binds a local: both what is imported and what it is called count.
            return f"{value}>{_resolve(str(value).partition('.')[0], scope)}"
        return f"{type(value).__name__}:{value!r}"

    def _function(self, node: _Function, outer: _Scope | None) -> str:
        spec = node.args
        parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
        rest = [a for a in (spec.vararg, spec.kwarg) if a is not None]
        named = {a.arg for a in parameters}
        if outer is not None or getattr(node, "name", None) != self.entry:
            named &= self.keywords
        body: Sequence[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else node.body
        names = ({a.arg for a in [*parameters, *rest]} | set(_bindings(body))) - named
        scope = _Scope(set() if self.keep else names, outer)
        # Defaults and annotations are evaluated where the function stands, not inside it.
        special = {"args": self._arguments(spec, outer, scope), "body": self._value(node, "body", node.body, scope)}
        return self._fields(node, outer, special)

    def _arguments(self, spec: ast.arguments, outer: _Scope | None, scope: _Scope) -> str:
        parts: list[str] = []
        groups = [spec.posonlyargs, spec.args, [spec.vararg], spec.kwonlyargs, [spec.kwarg]]
        for group in groups:
            for a in group:
                if a is not None:
                    noted = self.node(a.annotation, outer) if a.annotation else ""
                    parts.append(f"{_resolve(a.arg, scope)}:{noted}")
            parts.append("|")
        parts += ["-" if d is None else self.node(d, outer) for d in [*spec.defaults, *spec.kw_defaults]]
        return ",".join(parts)

    def _comprehension(self, node: _Comprehension, outer: _Scope | None) -> str:
        targets = [n for g in node.generators for n in ast.walk(g.target)]
        stored = {n.id for n in targets if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        scope = _Scope(set() if self.keep else stored, outer)
        # The first iterable is evaluated outside.
        parts = [
            self._fields(g, scope, {"iter": self.node(g.iter, scope if i else outer)})
            for i, g in enumerate(node.generators)
        ]
        return self._fields(node, scope, {"generators": ",".join(parts)})


def _binds_or_reads(node: ast.AST, field: str) -> bool:
    match node:
        case ast.Name():
            return field == "id"
        case ast.alias():
            return field == "asname"
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.ExceptHandler():
            return field == "name"
        case ast.MatchAs() | ast.MatchStar():
            return field == "name"
        case ast.MatchMapping():
            return field == "rest"
        case _:
            return False


def _body(node: ast.AST) -> Sequence[ast.AST]:
    """The statements of `node` without a docstring; `node` is anything with a list as its body."""
    body: list[ast.stmt] = getattr(node, "body", [])
    if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) and body:
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            return body[1:] if isinstance(first.value.value, str) else body
    return body


def _bindings(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Names that these nodes bind in their own scope, without those of scopes inside them."""
    todo: list[ast.AST] = list(nodes)
    while todo:
        node = todo.pop()
        if isinstance(node, _Comprehension):
            yield from (n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
            continue
        if isinstance(node, _Function):
            if not isinstance(node, ast.Lambda):
                yield node.name
            continue
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        todo.extend(ast.iter_child_nodes(node))
