"""Which sources need no process of their own beside `solve`: those that can only compute with numbers.

A candidate that shares the interpreter with `solve` may walk to it: over frames, modules, classes, attributes, memory.
A source is *vetted* where it has no means for any of that, because of what it may hold:

- **No text.** Names of attributes, formats, types of structured arrays: all of them begin with a text. A text may
  stand as a docstring, in an exception that is raised, as one of a few words that say how to sort, or under a name that
  is never read. No function collects arguments by name, neither `dict` nor one of its own: names are texts.
- **No place for a text** that `solve` itself gives: a function is called with as many arguments as come before that
  which says a type, an order or where to write (`coevo.sandbox.allowances`), and a type stands there by its name.
- **No function as a value.** A function of numpy, of Python or of its own is called where it is named, and can neither
  be kept nor handed on; but for a `lambda` as the `key` of a sort.
- **No attribute but a few.** `shape`, `size`, `ndim`, `T`, constants of numpy and math; and methods, where they are
  called, of arrays, lists, dictionaries and sets.
- **Listed names alone.** Functions that compute, with no keyword beyond `axis` and the like: none that leaves memory as
  it was (`np.empty`, `where`, `out`), or whose state `solve` shares (`np.random`, `np.seterr`). A type for an array is
  `float`, `int`, `bool` or one of numpy's, and is no value otherwise.
- No class, decorator, generator function, `with`, `match`, no name with two underscores in front.

So its values are numbers, arrays of them, and containers. Modules are stand-ins that hold the listed functions. What it
is given and what it gives are copies. What is not vetted is not refused: it gets a process of its own, with the same
outcome.
"""

from __future__ import annotations

import ast
import builtins
import collections.abc
import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from coevo.sandbox.allowances import (
    BUILTINS,
    CONSTANTS,
    EXCEPTIONS,
    ITERTOOLS,
    KEYWORDS,
    MANY,
    MATH,
    METHODS,
    NAMED,
    NUMPY,
    TYPED,
    TYPES,
    TYPING,
    VALUES,
    WORDS,
)

_LONGEST = 1 << 16
_DEEPEST = 60
"""Levels of a tree; what walks through it calls itself for each."""
_ANNOTATED = frozenset({"ndarray", "integer", "floating", "number", *TYPES})
_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Delete, ast.Assign, ast.AugAssign,
    ast.AnnAssign, ast.For, ast.While, ast.If, ast.Raise, ast.Try, ast.Assert, ast.Global, ast.Nonlocal, ast.Expr,
    ast.Pass, ast.Break, ast.Continue, ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp,
    ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Compare, ast.Call,
    ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice,
    ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.comprehension, ast.ExceptHandler,
    ast.keyword, ast.Import, ast.ImportFrom, ast.alias,
)  # fmt: skip

_MODULES: Mapping[str, SimpleNamespace] = {
    "numpy": SimpleNamespace(
        **{name: getattr(np, name) for name in (*NUMPY, *CONSTANTS, *TYPES) if hasattr(np, name)},
        linalg=SimpleNamespace(norm=np.linalg.norm),
    ),
    "math": SimpleNamespace(**{name: getattr(math, name) for name in (*MATH, *CONSTANTS) if hasattr(math, name)}),
    "itertools": SimpleNamespace(**{name: getattr(itertools, name) for name in ITERTOOLS}),
}
_STAND_INS = "__modules"


def vetted(source: bytes) -> ast.Module | None:
    """The source as a tree that may be run beside `solve`, None where it needs a process of its own."""
    if len(source) > _LONGEST:
        return None
    try:
        tree = ast.parse(source.decode())
        _Vetting(tree)
        return ast.fix_missing_locations(_Replacing().visit(tree))
    except (_NotVettedError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def namespace() -> dict[str, Any]:
    """The globals of a vetted source: the builtins that it may name."""
    known = {name: getattr(builtins, name) for name in (*BUILTINS, *EXCEPTIONS)}
    # numpy imports parts of itself when they are first called, by the builtins of whoever calls; no source can name it.
    known["__import__"] = __import__
    return {"__name__": "candidate", "__builtins__": {**known, _STAND_INS: _MODULES}}


class _NotVettedError(Exception):
    """It has something that is on no list."""


def _demand(condition: bool) -> None:
    if not condition:
        raise _NotVettedError


class _Vetting:
    """Goes over a tree once; raises where it is not vetted."""

    def __init__(self, tree: ast.Module) -> None:
        self._typing: set[str] = set()
        self._modules: dict[str, str] = {}
        self._functions: set[str] = set()
        self._imported: dict[str, tuple[str, str]] = {}
        self._values: set[str] = set()
        self._unread: set[str] = set()
        self._allowed: set[int] = set()
        """Nodes that may stand where they stand, though they could not elsewhere."""
        annotations = [annotation for node in ast.walk(tree) for annotation in _annotations(node)]
        inside = {id(node) for annotation in annotations for node in ast.walk(annotation)}
        nodes = [node for node in ast.walk(tree) if id(node) not in inside]
        _demand(_depth(tree) <= _DEEPEST)
        for node in nodes:
            _demand(isinstance(node, _NODES) and not any(name.startswith("__") for name in _named(node)))
            self._bind(node)
        # One name for one kind of thing, and none of Python's own.
        bound = (self._modules, self._functions, self._imported, self._values, self._unread, self._typing)
        _demand(sum(map(len, bound)) == len(set[str]().union(*bound)))
        _demand(not any(hasattr(builtins, name) for names in bound for name in names))
        for node in nodes:
            self._place(node)
        for node in nodes:
            self._look(node)
        ahead = _imported_ahead(tree)
        for annotation in annotations:
            self._annotation(annotation)
            for node in ast.walk(annotation):
                if isinstance(node, ast.Name) and node.id in (*self._typing, *self._modules):
                    _demand(ahead.get(node.id, annotation.lineno) < annotation.lineno)

    def _bind(self, node: ast.AST) -> None:
        """Sort the names that are given a value by what it is."""
        match node:
            case ast.Import(names=names):
                _demand(all(alias.name in _MODULES for alias in names))
                self._modules |= {alias.asname or alias.name: alias.name for alias in names}
            case ast.ImportFrom(module="typing" | "collections.abc", level=0, names=names):
                _demand(all(alias.name in TYPING and alias.asname is None for alias in names))
                _demand(node.module == "typing" or all(hasattr(collections.abc, alias.name) for alias in names))
                self._typing |= {alias.name for alias in names}
            case ast.ImportFrom(module="__future__", level=0, names=[ast.alias(name="annotations")]):
                pass
            case ast.ImportFrom(module=module, level=0, names=names):
                known = vars(_MODULES.get(module or "", SimpleNamespace()))
                _demand(all(callable(known.get(alias.name)) for alias in names))
                self._imported |= {alias.asname or alias.name: (str(module), alias.name) for alias in names}
            case ast.ImportFrom():
                raise _NotVettedError
            case ast.arguments(kwarg=ast.arg()):
                raise _NotVettedError  # names would become texts
            case ast.AnnAssign(value=None):
                raise _NotVettedError  # makes a name local, and leaves it without a value
            case ast.FunctionDef():
                _demand(not node.decorator_list)
                self._functions.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str()) as text):
                self._unread.add(name)
                self._allowed.add(id(text))
                self._allowed.add(id(node.targets[0]))
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                if id(node) not in self._allowed:
                    self._values.add(name)
            case _:
                pass

    def _place(self, node: ast.AST) -> None:
        """Note what may stand in this node."""
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                self._allowed.add(id(text))
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) as raised, args=arguments, keywords=[])):
                _demand(name in EXCEPTIONS)
                self._allowed |= {id(raised), *(id(each) for each in arguments if isinstance(each, ast.Constant))}
            case ast.Raise(exc=ast.Name(id=name) as raised) if name in EXCEPTIONS:
                self._allowed.add(id(raised))
            case ast.ExceptHandler(type=caught):
                kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught] if caught is not None else []
                _demand(node.name is None and all(isinstance(k, ast.Name) and k.id in EXCEPTIONS for k in kinds))
                self._allowed |= {id(kind) for kind in kinds}
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value="inf" | "-inf" | "nan") as text]):
                self._allowed |= {id(node.func), id(text)}
            case ast.Call() if id(node.func) not in self._allowed:
                self._call(node)
            case ast.Attribute(value=ast.Name(id=name) as module) if name in self._modules:
                self._allowed.add(id(module))
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=name), attr="linalg") as linalg):
                if name in self._modules and node.attr == "norm":
                    self._allowed.add(id(linalg))
            case _:
                pass

    def _call(self, node: ast.Call) -> None:
        function = node.func
        self._allowed.add(id(function))
        match function:
            case ast.Name(id=name) if name in self._functions:
                return
            case ast.Name(id=name) if name in self._imported:
                self._call_listed(node, *self._imported[name])
            case ast.Name(id=name):
                _demand(name in BUILTINS)
                self._call_listed(node, "", name)
            case ast.Attribute(value=ast.Name(id=of), attr=name) if of in self._modules:
                self._call_listed(node, self._modules[of], name)
            case ast.Attribute(value=ast.Attribute(value=ast.Name(id=of), attr="linalg"), attr="norm"):
                self._call_listed(node, self._modules.get(of, ""), "norm")
            case ast.Attribute(attr="astype"):
                _demand(len(node.args) == 1 and self._is_type(node.args[0]) and not node.keywords)
                self._allowed.add(id(node.args[0]))
            case ast.Attribute(attr=name):
                _demand(name in METHODS)
                self._arguments(node, METHODS[name], typed=False)
                self._keywords(node, NAMED.get(name, ()))
            case _:
                raise _NotVettedError

    def _call_listed(self, node: ast.Call, module: str, name: str) -> None:
        """Look at the arguments of a function of Python or of a module."""
        match module:
            case "numpy" if name in NUMPY:
                self._arguments(node, NUMPY[name], typed=name in TYPED)
                self._keywords(node, (*KEYWORDS, *WORDS, "dtype"))
            case "numpy":
                _demand(name in TYPES or name == "norm")
                self._arguments(node, 1 if name in TYPES else 3, typed=False)
                self._keywords(node, KEYWORDS)
            case "":
                _demand(name in BUILTINS)
                self._keywords(node, NAMED.get(name, ()))
            case _:
                _demand(name in (MATH if module == "math" else ITERTOOLS))
                self._keywords(node, ("start",))

    def _arguments(self, node: ast.Call, most: int, typed: bool) -> None:
        """Refuse arguments by position beyond `most`, but for a type where one comes next."""
        _demand(most == MANY or not any(isinstance(argument, ast.Starred) for argument in node.args))
        for argument in node.args[most:]:
            _demand(typed and argument is node.args[most] and self._is_type(argument))
            self._allowed.add(id(argument))

    def _keywords(self, node: ast.Call, known: Collection[str]) -> None:
        for keyword in node.keywords:
            _demand(keyword.arg in known)
            match keyword:
                case ast.keyword(arg="dtype"):
                    _demand(self._is_type(keyword.value))
                    self._allowed.add(id(keyword.value))
                case ast.keyword(arg="key"):
                    _demand(isinstance(keyword.value, ast.Lambda))
                    self._allowed.add(id(keyword.value))
                case ast.keyword(arg="kind" | "side" as word, value=ast.Constant(value=value)):
                    _demand(value in WORDS[word])
                    self._allowed.add(id(keyword.value))
                case _:
                    _demand(keyword.arg not in WORDS)

    def _is_type(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in ("int", "float", "bool")
            case ast.Attribute(value=ast.Name(id=name), attr=kind):
                return name in self._modules and kind in TYPES
            case _:
                return False

    def _look(self, node: ast.AST) -> None:
        """Refuse what stands where it may not."""
        if id(node) in self._allowed:
            return
        match node:
            case ast.Attribute(value=ast.Name(id=name)) if name in self._modules:
                _demand(isinstance(node.ctx, ast.Load) and node.attr in CONSTANTS)
            case ast.Attribute():
                _demand(isinstance(node.ctx, ast.Load) and node.attr in VALUES)
            case ast.Name(ctx=ast.Load() | ast.Del()):
                _demand(node.id in self._values)
            case ast.Constant(value=value):
                _demand(value is None or value is ... or isinstance(value, int | float | complex))
            case ast.Lambda():
                raise _NotVettedError
            case ast.Starred(ctx=ast.Load()):
                pass
            case _:
                pass

    def _annotation(self, annotation: ast.expr) -> None:
        """Annotations are left out, so they may hold what could not fail if they were evaluated."""
        match annotation:
            case ast.Constant(value=value) if value is None or value is ... or isinstance(value, str):
                pass
            case ast.Name(id=name):
                _demand(name in self._typing or name in ("int", "float", "bool", "str", "list", "dict", "tuple", "set"))
            case ast.Attribute(value=ast.Name(id=name), attr=attribute):
                _demand(self._modules.get(name) == "numpy" and attribute in _ANNOTATED)
            case ast.Subscript(value=ast.Name(id=name), slice=inner):
                _demand(name in self._typing or name in ("list", "dict", "tuple", "set"))
                parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                if name in self._typing:
                    fewest, most = TYPING[name]
                    _demand(fewest <= len(parts) <= most)
                    _demand(all(not isinstance(part, ast.Constant) or part.value in (None, ...) for part in parts))
                for part in parts:
                    self._annotation(part)
            case _:
                raise _NotVettedError


def _depth(tree: ast.AST) -> int:
    """Levels of a tree, found without a call for each."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level and depth <= _DEEPEST:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    for field in ("annotation", "returns"):
        annotation = getattr(node, field, None)
        if annotation is not None:
            yield annotation


def _imported_ahead(tree: ast.Module) -> dict[str, int]:
    """Name → line of its import, of what is imported once and at the top level: it is there from then on."""
    kinds = (ast.Import, ast.ImportFrom)
    everywhere = [alias.asname or alias.name for n in ast.walk(tree) if isinstance(n, kinds) for alias in n.names]
    return {
        name: statement.lineno
        for statement in tree.body
        if isinstance(statement, kinds)
        for alias in statement.names
        if everywhere.count(name := alias.asname or alias.name) == 1
    }


def _named(node: ast.AST) -> Iterator[str]:
    """Identifiers in a node, in whatever field they are."""
    for field in ("id", "arg", "name", "asname", "attr"):
        name = getattr(node, field, None)
        if isinstance(name, str):
            yield name
    if isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names


class _Replacing(ast.NodeTransformer):
    """Puts stand-ins in the place of modules, and leaves annotations out."""

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [_assigned(node, alias.asname or alias.name, _stand_in(alias.name)) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt] | ast.stmt:
        module = node.module
        if module is None or module not in _MODULES:
            return ast.copy_location(ast.Pass(), node)
        return [
            _assigned(node, alias.asname or alias.name, ast.Attribute(_stand_in(module), alias.name, ast.Load()))
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
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _stand_in(module: str) -> ast.expr:
    return ast.Subscript(ast.Name(_STAND_INS, ast.Load()), ast.Constant(module), ast.Load())


def _assigned(node: ast.stmt, name: str, value: ast.expr) -> ast.stmt:
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], value), node)
