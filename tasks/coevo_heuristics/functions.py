"""Finds the function that a model wrote, among fences, talk, helpers and example calls.

Of all blocks that parse and define the entry the longest is taken, of equal ones the last: models repeat
themselves, and a late stub must not win over the real thing.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from coevo_heuristics.pruning import keep_needed
from coevo_heuristics.syntax import (
    accepts,
    always_returns,
    ascii_operators,
    explain,
    global_names,
    one_line,
    parse_module,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that looks like code; `cut` where nothing closes it, so a token limit may have cut it off."""

    text: str
    cut: bool


@dataclass(frozen=True, slots=True)
class Function:
    """The source of an answer: imports, helpers and the entry, under its own name."""

    source: str
    docstring: str


_FENCE_LINE = re.compile(r"^[ \t>]*(?:```+|~~~+)[ \t]*([\w+-]*)[ \t]*(.*)$")
_PYTHON = re.compile("python3?|py|Python")
_STARTS = re.compile(
    r"import\s+\w|from\s+[\w.]+\s+import\b|(?:async\s+)?def\s+\w+\s*\(|class\s+\w+.*:|@\w|[A-Z_][A-Z0-9_]*\s*(?::.+)?=[^=]"
)
_GOES_ON = re.compile(
    r"""\s|$|\#|[)\]}]|"{3}|'{3}|
    (?:if|elif|while|with)\b.*:\s*(?:\#.*)?$|for\b.*\bin\b.*:\s*(?:\#.*)?$|(?:else|try|finally)\s*:|except\b.*:|
    [\w.]+(?:\[.*\])?(?:\s*,\s*\w+)*\s*(?::\s*[\w.\[\], ]+)?(?:[-+*/%&|^@]|//|\*\*)?=[^=]|
    [\w.]+\(.*\)\s*(?:\#.*)?$""",
    re.VERBOSE,
)


def split(text: str) -> tuple[list[Piece], str]:
    """The pieces of `text` that look like code, in order, and the talk around them."""
    pieces: list[Piece] = []
    talk: list[str] = []
    outside: list[str] = []
    inside: list[str] | None = None
    for line in text.split("\n"):
        fence = _FENCE_LINE.match(line)
        if fence and fence[2].endswith("```"):  # a whole block on one line
            (outside if inside is None else inside).append("")
            pieces.append(Piece(fence[2][:-3], cut=False))
        elif fence and (inside is None or _PYTHON.fullmatch(fence[1])):
            if inside is None:
                _bare(outside, pieces, talk)
            else:  # a fence opened within a fence: the first was never closed
                pieces.append(Piece("\n".join(inside), cut=False))
            outside, inside = [], [fence[2]] if _STARTS.match(fence[2]) else []
        elif inside is not None and (fence or line.rstrip().endswith("```")):
            last = [] if fence else [line.rstrip()[:-3]]
            pieces.append(Piece("\n".join([*inside, *last]), cut=False))
            inside = None
        else:
            (outside if inside is None else inside).append(line)
    _bare(outside, pieces, talk)
    if inside is not None:
        pieces.append(Piece("\n".join(inside), cut=True))
    return [piece for piece in pieces if piece.text.strip()], "\n".join(talk)


def _bare(lines: list[str], pieces: list[Piece], talk: list[str]) -> None:
    """Code without fences: from a line that starts some to the first line that cannot belong to it."""
    lines = textwrap.dedent("\n".join(lines)).split("\n")
    i = 0
    while i < len(lines):
        if not _STARTS.match(lines[i]):
            talk.append(lines[i])
            i += 1
            continue
        end = i + 1
        while end < len(lines) and (_STARTS.match(lines[end]) or _GOES_ON.match(lines[end])):
            end += 1
        pieces.append(Piece("\n".join(lines[i:end]), cut=end == len(lines)))
        i = end


def choose(
    pieces: Sequence[Piece], name: str, arity: int, given: Collection[str], truncated: bool
) -> tuple[Function | None, str, str]:
    """The function, or None with the status and the reason.

    Args:
        pieces: what looks like code, in order.
        name: of the function that must be defined.
        arity: number of positional arguments that it is called with.
        given: names that need no definition, the template's imports.
        truncated: whether a piece that nothing closes may be cut off.
    """
    trees: list[tuple[str, ast.Module]] = []
    problem = ""
    for piece in pieces:
        try:
            trees.append(_parse(piece, truncated, name))
        except SyntaxError as error:
            # A broken block that names the entry explains more than one that does not.
            if not problem or name in piece.text:
                problem = explain(error)
    best: tuple[str, ast.FunctionDef] | None = None
    why_not = ""
    for source, tree in trees:
        function, said = _entry(tree, name, arity)
        why_not = said or why_not
        if function is not None and (best is None or len(source) >= len(best[0])):
            best = (source, function)
    if best is None:
        # Code that broke before the entry could be seen is a syntax error, not a missing entry.
        broken_entry = problem and any(name in p.text for p in pieces) and not any(name in s for s, _ in trees)
        if trees and not broken_entry:
            return None, "no_entry", why_not or f"no function {name!r}"
        return None, "syntax", problem
    source, function = best
    source = _with_missing(source, [s for s, _ in trees], given)
    kept = keep_needed(source, function.name)
    if function.name != name:
        kept = re.sub(rf"(?<![\w.]){re.escape(function.name)}\b", name, kept)
    docstring = (ast.get_docstring(function) or "").partition("\n\n")[0]
    return Function(kept, one_line(docstring, 300)), "ok", ""


def _parse(piece: Piece, truncated: bool, name: str) -> tuple[str, ast.Module]:
    """The piece as source that parses.

    Raises:
        SyntaxError: of the text as it is, where no mild repair helps.
    """
    source = textwrap.dedent(piece.text).strip("\n").rstrip()
    try:
        return source, parse_module(source)
    except SyntaxError as error:
        first = error
    repaired: list[Piece] = []
    _bare(source.split("\n"), repaired, [])  # talk inside the fence
    attempts = [ascii_operators(source), *(p.text.rstrip() for p in repaired if name in p.text)]
    for attempt in attempts:
        if attempt != source:
            try:
                return attempt, parse_module(attempt)
            except SyntaxError:
                continue
    if truncated and piece.cut:
        return _without_tail(source, name, first)
    raise first


def _without_tail(source: str, name: str, error: SyntaxError) -> tuple[str, ast.Module]:
    """`source` up to its last whole statement, if the entry is whole or still returns on every path."""
    lines = source.split("\n")
    for end in range(len(lines) - 1, max(0, len(lines) - 60), -1):
        shorter = "\n".join(lines[:end])
        try:
            tree = parse_module(shorter)
        except SyntaxError:
            continue
        last = tree.body[-1] if tree.body else None
        function = next((f for f in _functions(tree) if f.name == name), None)
        if function is None:
            break
        if function is last and not always_returns(function.body):
            break
        if function is not last and isinstance(last, ast.FunctionDef | ast.ClassDef):
            # A helper that was being written when the limit came is no helper.
            shorter = "\n".join(lines[: _first_line(last) - 1])
        return shorter, parse_module(shorter)
    raise error


def _first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def _entry(tree: ast.Module, name: str, arity: int) -> tuple[ast.FunctionDef | None, str]:
    """The last function called `name`, else `name_v2`, else the only one that fits; or why there is none."""
    functions = {function.name: function for function in _functions(tree)}  # the last of a name wins
    versions = [f for f in functions if re.fullmatch(rf"{re.escape(name)}_?v?\d+", f)]
    chosen = functions.get(name) or (functions[versions[-1]] if versions else None)
    if chosen is not None:
        if accepts(chosen, arity):
            return chosen, ""
        return None, f"function {chosen.name!r} cannot be called with {arity} arguments"
    fitting = [function for function in functions.values() if accepts(function, arity)]
    if len(fitting) == 1:
        return fitting[0], ""
    others = ", ".join(sorted(functions)) or "none"
    return None, f"no function {name!r}; defined: {others}"


def _with_missing(source: str, others: Sequence[str], given: Collection[str]) -> str:
    """`source` after those other blocks that define what it uses and does not define."""
    used, bound = global_names(source)
    missing = used - bound - {*dir(builtins), *given}
    before = [other for other in others if other != source and missing & global_names(other)[1]]
    together = "\n\n".join([*before, source])
    try:
        parse_module(together)
    except SyntaxError:  # `from __future__` must come first
        return source
    return together


_BRACED = re.compile(r"\{([^{}]{8,})\}")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_MARKUP = re.compile(r"^[\s#*>\-•\d.)]*|[*`]{2,}")


def thought_of(talk: str) -> str:
    """The idea in words: the first sentence in braces, else the first sentence, else nothing."""
    braced = _BRACED.search(talk)
    if braced:
        return one_line(braced[1], 300)
    lead_in = ""
    for line in talk.split("\n"):
        said = _MARKUP.sub("", line).strip()
        if not any(c.isalpha() for c in said):
            continue
        sentence = _SENTENCE_END.split(said)[0]
        if not sentence.endswith(":") and len(sentence.split()) > 2:  # "Sure! Here it is:" says nothing
            return one_line(sentence, 300)
        lead_in = lead_in or sentence
    return one_line(lead_in, 300)
