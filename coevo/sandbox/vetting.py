"""Which sources need no process of their own beside `solve`, because nothing that they say can reach it.

A candidate that shares the interpreter with `solve` may walk to it: over frames, modules, classes, attributes. A source
is *vetted* where it has no means for that: it consists of functions, loops and expressions; each attribute that it
names is on a list of methods and functions that only compute, and so is each name that it does not define itself; it
has no classes, decorators, generators, `with` or names that begin with two underscores, and assigns to no attribute.
Modules are stand-ins that hold the listed functions and nothing else. What it is given and what it gives are
copies. Whatever is not on the lists is not forbidden: it goes to a process of its own, with the same outcome.

Left out on purpose, besides all that looks into objects: `np.empty` and `where=`, which show memory that others freed;
`np.random` and `random`, whose state `solve` may share; `np.seterr` and the like, whose state it does share; `view`,
`data` and strides; `str.format`, which reads attributes; `print` to another file needs an object that it cannot get.
"""

from __future__ import annotations

import ast
import bisect
import builtins
import copy
import functools
import heapq
import itertools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from coevo.sandbox.allowances import BUILTINS, METHODS, NUMPY

_LONGEST = 1 << 16

_TYPING = frozenset(
    ["Any", "Callable", "Dict", "Iterable", "List", "Mapping", "Optional", "Sequence", "Set", "Tuple", "Union"]
)
_ANNOTATED = frozenset({"ndarray", "integer", "floating", "number", "float64", "int64"})
_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Delete, ast.Assign, ast.AugAssign,
    ast.AnnAssign, ast.For, ast.While, ast.If, ast.Raise, ast.Try, ast.Assert, ast.Global, ast.Nonlocal, ast.Expr,
    ast.Pass, ast.Break, ast.Continue, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp,
    ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Compare, ast.Call,
    ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List,
    ast.Tuple, ast.Slice, ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.comprehension,
    ast.ExceptHandler, ast.keyword, ast.Import, ast.ImportFrom, ast.alias,
)  # fmt: skip


def _listed(module: ModuleType) -> SimpleNamespace:
    """A stand-in for a module that only computes."""
    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return SimpleNamespace(**{name: value for name, value in public.items() if not isinstance(value, ModuleType)})


_MODULES: Mapping[str, SimpleNamespace] = {
    "numpy": SimpleNamespace(
        **{name: getattr(np, name) for name in NUMPY if hasattr(np, name)},
        linalg=SimpleNamespace(norm=np.linalg.norm),
    ),
    "math": _listed(math),
    "itertools": _listed(itertools),
    "heapq": _listed(heapq),
    "bisect": _listed(bisect),
    "collections": SimpleNamespace(Counter=Counter, defaultdict=defaultdict, deque=deque),
    "functools": SimpleNamespace(reduce=functools.reduce),
    "copy": SimpleNamespace(copy=copy.copy, deepcopy=copy.deepcopy),
}
_ATTRIBUTES = frozenset([*METHODS, *(name for module in _MODULES.values() for name in vars(module)), "norm"])
_STAND_INS = "__modules"


def vetted(source: bytes) -> ast.Module | None:
    """The source as a tree that may be run beside `solve`, None where it needs a process of its own."""
    if len(source) > _LONGEST:
        return None
    try:
        tree = ast.parse(source.decode())
        _Vetting(tree)
    except (_NotPlainError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return ast.fix_missing_locations(_Replacing().visit(tree))


def namespace() -> dict[str, Any]:
    """The globals of a vetted source: the builtins that it may name."""
    known = {name: getattr(builtins, name) for name in BUILTINS}
    # numpy imports parts of itself when they are first called, by the builtins of whoever calls; no source can name it.
    known["__import__"] = __import__
    return {"__name__": "candidate", "__builtins__": {**known, _STAND_INS: _MODULES}}


class _NotPlainError(Exception):
    """It has something that is on no list."""


def _demand(condition: bool) -> None:
    if not condition:
        raise _NotPlainError


class _Vetting:
    """Goes over a tree once; raises where it is not vetted."""

    def __init__(self, tree: ast.Module) -> None:
        self._imported: set[str] = set()
        annotations = [annotation for node in ast.walk(tree) for annotation in _annotations(node)]
        inside = {id(node) for annotation in annotations for node in ast.walk(annotation)}
        nodes = [node for node in ast.walk(tree) if id(node) not in inside]
        for node in nodes:
            _demand(isinstance(node, _NODES))
            self._look(node)
        bound = {name for node in nodes for name in _bound(node)}
        # One that is a builtin elsewhere in the source would be missing there.
        _demand(not any(hasattr(builtins, name) and name not in BUILTINS for name in bound))
        for node in nodes:
            if isinstance(node, ast.Name):
                _demand(node.id in bound or node.id in BUILTINS)
        for annotation in annotations:
            self._annotation(annotation, bound | self._imported)

    def _look(self, node: ast.AST) -> None:
        for name in _named(node):
            _demand(not name.startswith("__"))
        match node:
            case ast.Attribute():
                _demand(isinstance(node.ctx, ast.Load) and node.attr in _ATTRIBUTES)
            case ast.FunctionDef():
                _demand(not node.decorator_list)
            case ast.keyword():
                # A ufunc leaves what is not `where` as the memory was.
                _demand(node.arg is not None and node.arg != "where")
            case ast.Import():
                _demand(all(alias.name in _MODULES for alias in node.names))
            case ast.ImportFrom():
                self._import(node)
            case _:
                pass

    def _import(self, node: ast.ImportFrom) -> None:
        _demand(node.level == 0)
        if node.module == "__future__":
            _demand([alias.name for alias in node.names] == ["annotations"])
        elif node.module in ("typing", "collections.abc"):
            _demand(all(alias.name in _TYPING and alias.asname is None for alias in node.names))
            self._imported.update(alias.name for alias in node.names)
        else:
            known = vars(_MODULES.get(node.module or "", SimpleNamespace()))
            _demand(all(alias.name in known for alias in node.names))

    def _annotation(self, annotation: ast.expr, known: set[str]) -> None:
        """Annotations are left out, so they may hold what could not fail if they were evaluated."""
        match annotation:
            case ast.Constant(value=value) if value is None or value is ... or isinstance(value, str):
                pass
            case ast.Name(id=name):
                _demand(name in known or name in BUILTINS)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                _demand(name in known and attribute in _ANNOTATED)
            case ast.Subscript(value=ast.Name(id=name), slice=inner):
                _demand(name in _TYPING or name in ("list", "dict", "tuple", "set"))
                for part in inner.elts if isinstance(inner, ast.Tuple | ast.List) else [inner]:
                    self._annotation(part, known)
            case _:
                raise _NotPlainError


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    for field in ("annotation", "returns"):
        annotation = getattr(node, field, None)
        if annotation is not None:
            yield annotation


def _named(node: ast.AST) -> Iterator[str]:
    """Identifiers in a node, in whatever field they are."""
    for field in ("id", "arg", "name", "asname", "attr"):
        name = getattr(node, field, None)
        if isinstance(name, str):
            yield name
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that a node gives a value to."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
            yield name
        case ast.ExceptHandler(name=str(name)):
            yield name
        case ast.Import(names=names):
            yield from (alias.asname or alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names) if module in _MODULES:
            yield from (alias.asname or alias.name for alias in names)
        case _:
            pass


class _Replacing(ast.NodeTransformer):
    """Puts stand-ins in the place of modules, and leaves annotations out."""

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [_assigned(node, alias.asname or alias.name, _stand_in(alias.name)) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt] | ast.stmt:
        if node.module is None or node.module not in _MODULES:
            return ast.copy_location(ast.Pass(), node)
        return [
            _assigned(node, alias.asname or alias.name, ast.Attribute(_stand_in(node.module), alias.name, ast.Load()))
            for alias in node.names
        ]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _stand_in(module: str) -> ast.expr:
    return ast.Subscript(ast.Name(_STAND_INS, ast.Load()), ast.Constant(module), ast.Load())


def _assigned(node: ast.stmt, name: str, value: ast.expr) -> ast.stmt:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
