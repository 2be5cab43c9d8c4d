"""Finds one expression in what a model wrote after `score =`.

Small models go on after the answer. What follows a complete expression and cannot continue it (a word, a
comma, a closing bracket) is junk and cut; what could continue it (`d_home *`) is an answer that was broken
off, hence a syntax error: half an answer is not what the model said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from coevo_heuristics.syntax import ascii_operators, explain, one_line, parse_expression_source


@dataclass(frozen=True, slots=True)
class Found:
    """An expression as the model wrote it, on one line, and the comment that followed it."""

    source: str
    comment: str = ""


_FENCE = re.compile(r"(?:```|~~~)[ \t]*(?:python3?|py)?\b", re.IGNORECASE)
_TOKEN = re.compile(
    r"""(?P<space>\s+) | (?P<comment>\#[^\n]*)
    | (?P<string>'{3}.*?'{3} | "{3}.*?"{3} | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*")
    | (?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[jJ]?)
    | (?P<name>[^\W\d]\w*)
    | (?P<op>\*\*|//|<<|>>|<=|>=|==|!=|:=|->|.)""",
    re.VERBOSE | re.DOTALL,
)
_JUNK_OPERATORS = frozenset(",;.:=!?$`)]}\\")
_JOINERS = frozenset({"and", "or", "not", "if", "else", "in", "is", "for", "lambda"})
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_LONGEST_TEXT, _LONGEST_LINE, _MOST_LINES = 8_000, 1_000, 60  # bounds the work on a model that babbles


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int
    depth: int  # of brackets, before this token


def find(text: str, target: str, names: Collection[str]) -> tuple[Found | None, str]:
    """The answer, or None and the reason: empty where there is nothing that could be one.

    Args:
        text: a completion without thinking blocks.
        target: the assigned name; a repeated `target =` is dropped.
        names: the first candidate that uses one of these is taken, else the first of all.
    """
    first: Found | None = None
    problem = ""
    for candidate in _candidates(text, target):
        found, said = _leading(candidate)
        if found is None:
            problem = problem or said
        elif _uses(found.source, names):
            return found, ""
        else:
            first = first or found
    return first, "" if first else problem


def _candidates(text: str, target: str) -> Iterator[str]:
    """Every line that could start the answer, each with the lines after it that close its brackets."""
    head = re.compile(rf"\s*(?:[*_`>]*\s*{re.escape(target)}\s*(?::\s*\w+\s*)?=(?!=)|return\b)\s*")
    for piece in _FENCE.split(text[:_LONGEST_TEXT]):
        lines = piece.split("\n")[:_MOST_LINES]
        for i, line in enumerate(lines):
            while match := head.match(line):
                line = line[match.end() :]
            line = line.strip().strip("`").strip()
            if not line or line.startswith("#"):
                continue
            j = i + 1
            while j < len(lines) and len(line) < _LONGEST_LINE and _open_brackets(line):
                line, j = f"{line}\n{lines[j]}", j + 1
            yield line


def _lex(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    depth = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "op"
        if kind == "space":
            continue
        tokens.append(_Token(kind, match.group(), match.start(), match.end(), depth))
        depth += (match.group() in _OPEN) - (match.group() in _CLOSE)
    return tokens


def _open_brackets(text: str) -> bool:
    return sum((t.text in _OPEN) - (t.text in _CLOSE) for t in _lex(text)) > 0


def _leading(text: str) -> tuple[Found | None, str]:
    """The expression that `text` begins with, or None and what is wrong with it."""
    if len(text) > _LONGEST_LINE:
        return None, f"longer than {_LONGEST_LINE} characters"
    tokens = _lex(text)
    comment = ""
    for i, token in enumerate(tokens):
        if token.kind == "comment" and token.depth <= 0:
            comment = token.text.lstrip("# ").strip()
        # A comma at the top would make a tuple, which no score is: what follows it is talk. So is what
        # follows a full stop and a space.
        stop = token.text in (",", ";") or (token.text == "." and not text[token.end : token.end + 1].strip())
        if token.depth <= 0 and (token.kind == "comment" or stop):
            tokens = tokens[:i]
            break
    if not tokens:
        return None, ""
    whole = text[: tokens[-1].end]
    try:
        return Found(_on_one_line(whole), one_line(comment)), ""
    except SyntaxError as error:
        problem = explain(error)
    for i in range(len(tokens) - 1, 0, -1):
        try:
            source = _on_one_line(text[: tokens[i - 1].end])
        except SyntaxError:
            continue
        # The longest prefix decides: `np.sqrt(d` is no `np.sqrt`.
        return (Found(source, one_line(comment)), "") if _is_junk(tokens[i]) else (None, problem)
    return None, problem


def _is_junk(token: _Token) -> bool:
    """Whether `token` cannot continue a complete expression."""
    if token.kind == "op":
        return token.text in _JUNK_OPERATORS or not token.text.isascii()
    return token.kind == "name" and token.text not in _JOINERS


def _on_one_line(source: str) -> str:
    try:
        tree = parse_expression_source(source)
    except SyntaxError:
        source = ascii_operators(source)
        tree = parse_expression_source(source)
    if "\n" not in source:
        return source
    try:
        return ast.unparse(tree)
    except RecursionError:
        raise SyntaxError("nested too deeply") from None


def _uses(source: str, names: Collection[str]) -> bool:
    tree = parse_expression_source(source)
    return any(isinstance(node, ast.Name) and node.id in names for node in ast.walk(tree))
