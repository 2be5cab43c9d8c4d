"""From a completion to an answer: the task owns this, updaters only read its outcome.

Covered: code in fences, several fences, bare code, thinking blocks, a repeated assignment, comments and
prose around the answer, functions renamed `…_v2`, example calls after the function, a tail cut off by the
token limit. Not covered: diffs, and methods of a class.

A sample is never lost for the lack of a thought, and a failure is told apart by kind: `no_answer` (nothing
that could be one), `syntax` (it does not parse), `no_entry` (it parses, but no function fits).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from coevo.engines.thinking import said
from coevo_heuristics import expressions, functions
from coevo_heuristics.syntax import plain


@dataclass(frozen=True, slots=True)
class Answer:
    """What a completion holds.

    Attributes:
        status: `ok`, or why there is no answer: `no_answer`, `syntax`, `no_entry`.
        text: the expression or the source of the function, as it is shown to a model.
        thought: the idea in words, empty where the model gave none.
        message: the reason of a failure in one line.
    """

    status: str
    text: str = ""
    thought: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """The function that an answer must define: its name and how many arguments it is called with."""

    name: str
    arity: int
    imports: Collection[str] = ()
    """Names that the template imports, which an answer may use without importing them."""


_STILL_THINKING = "the thinking never ends, so there is no answer"


def parse_expression(text: str, target: str, names: Collection[str]) -> Answer:
    """The expression that a completion of `target =` holds.

    Args:
        text: the completion.
        target: the name that is assigned to (`score`).
        names: what an expression should use; of several candidates the first that uses one is taken.
    """
    body, unfinished = said(plain(text))
    if unfinished:
        return Answer("no_answer", message=_STILL_THINKING)
    found, problem = expressions.find(body, target, names)
    if found is not None:
        return Answer("ok", found.source, found.comment)
    if problem:
        return Answer("syntax", message=problem)
    return Answer("no_answer", message="the answer holds no expression")


def parse_function(text: str, entry: Entry, truncated: bool = False) -> Answer:
    """The function that a completion holds, with the imports and helpers that it needs.

    Args:
        text: the completion, after the prefill if there was one.
        entry: what must be defined.
        truncated: whether the token limit cut the completion off; a cut tail is then dropped where what
            is left still returns on every path.
    """
    body, unfinished = said(plain(text))
    if unfinished:
        return Answer("no_answer", message=_STILL_THINKING)
    pieces, outside = functions.split(body)
    if not pieces:
        return Answer("no_answer", message="the answer holds no Python code")
    found, status, problem = functions.choose(pieces, entry.name, entry.arity, entry.imports, truncated)
    if found is None:
        return Answer(status, message=problem)
    return Answer("ok", found.source, functions.thought_of(outside) or found.docstring)
