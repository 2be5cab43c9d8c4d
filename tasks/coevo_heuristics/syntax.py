"""Python source as a model writes it: parsed without a warning, a crash or an unbounded recursion.

Everything here is silent and total: what cannot be parsed is a `SyntaxError` with one line of message,
whatever the interpreter itself would have raised.
"""

from __future__ import annotations

import ast
import re
import symtable
import threading
import warnings
from collections.abc import Sequence

LONGEST = 64_000
"""Characters of source that are looked at; a model that writes more is looping."""

_lock = threading.Lock()  # `catch_warnings` swaps a global: answers are parsed in several threads at once


def parse_module(source: str) -> ast.Module:
    """`source` as a module.

    Raises:
        SyntaxError: it does not parse or would not compile (`return` outside a function).
    """
    tree = _parse(source, "exec")
    assert isinstance(tree, ast.Module)
    return tree


def parse_expression_source(source: str) -> ast.expr:
    """`source` as one expression.

    Raises:
        SyntaxError: it does not parse or would not compile (`(yield)`).
    """
    tree = _parse(source, "eval")
    assert isinstance(tree, ast.Expression)
    return tree.body


def _parse(source: str, mode: str) -> ast.AST:
    if len(source) > LONGEST:
        raise SyntaxError(f"longer than {LONGEST} characters")
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(source, "<answer>", mode)
            compile(source, "<answer>", mode, dont_inherit=True)
        except SyntaxError:
            raise
        except (ValueError, OverflowError) as error:  # null bytes, endless digits
            raise SyntaxError(str(error)) from None
        except (RecursionError, MemoryError):
            raise SyntaxError("nested too deeply") from None
    return tree


def global_names(source: str) -> tuple[set[str], set[str]]:
    """The module-level names that `source` uses in any scope, and those that it binds itself.

    Raises:
        SyntaxError: it does not parse.
    """
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        top = symtable.symtable(source, "<answer>", "exec")
    used = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    todo = top.get_children()
    while todo:
        table = todo.pop()
        used.update(symbol.get_name() for symbol in table.get_symbols() if symbol.is_global())
        todo.extend(table.get_children())
    return used, bound


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The names that an import binds; `*` stands for itself."""
    return [alias.asname or alias.name.partition(".")[0] for alias in node.names]


def accepts(function: ast.FunctionDef, count: int) -> bool:
    """Whether `function` can be called with `count` positional arguments and nothing else."""
    spec = function.args
    positional = len(spec.posonlyargs) + len(spec.args)
    required = positional - len(spec.defaults)
    most = count if spec.vararg else positional
    needs_keyword = any(default is None for default in spec.kw_defaults)
    return required <= count <= most and not needs_keyword


def always_returns(body: Sequence[ast.stmt]) -> bool:
    """Whether control cannot run off the end of `body`; False where that is not obvious."""
    if not body:
        return False
    last = body[-1]
    if isinstance(last, ast.Return | ast.Raise):
        return True
    if isinstance(last, ast.If):
        return always_returns(last.body) and always_returns(last.orelse)
    if isinstance(last, ast.With):
        return always_returns(last.body)
    if isinstance(last, ast.Try):
        if always_returns(last.finalbody):
            return True
        tried = always_returns(last.orelse or last.body)
        return tried and all(always_returns(handler.body) for handler in last.handlers)
    return False


def one_line(text: str, limit: int = 200) -> str:
    """`text` with its white space collapsed, cut to `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def explain(error: SyntaxError) -> str:
    """A syntax error in one line, with the line number where there is one."""
    place = f" (line {error.lineno})" if error.lineno else ""
    return one_line(f"{error.msg}{place}")


_UNICODE = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/", "’": "'", "“": '"', "”": '"'})


def ascii_operators(source: str) -> str:
    """`source` with typographic operators and quotes replaced; only for what does not parse as it is."""
    return source.translate(_UNICODE)


_INVISIBLE = re.compile("[\ufeff\u200b\u200c\u200d\u2060\0]")


def plain(text: str) -> str:
    """`text` with Unix line ends, hard spaces as spaces and nothing invisible."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u00a0", " ")
    return _INVISIBLE.sub("", text)
