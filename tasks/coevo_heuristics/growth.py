"""How much more work the instances of a split are than those of the search split.

A limit that is fair to a search would fail an honest program on a split with more or larger instances. What a program
needs there cannot be known, and measuring it would make limits differ from machine to machine; so the rule is one of
numbers and sizes: an instance counts as the square of its size, because most heuristics look at all that is left again
at every step. An evaluate.py whose instances do not show their size (some keep what others compute) has a function
`work`, which takes the rule's place.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coevo.records import Json
from coevo.sandbox import Author, Limits
from coevo_heuristics.problem import Problem

_DOUBT = 2.0
"""Times are measured once, on a machine that has other work too."""


def growth(problem: Problem, split: str, options: Mapping[str, Json]) -> float:
    """How many times the search split's work a split is, at least 1.

    Args:
        problem: whose evaluate.py makes the instances.
        split: as evaluate.py calls it.
        options: of `instances`.

    Raises:
        UserError: there is no such split, or `work` is wrong.
        AuthorError: the author's code takes too long, or ends its process.
    """
    with Author(problem.folder / "evaluate.py", None, limits=problem.limits()) as author:
        author.wait()
        search, other = (_work(author, name, options) for name in (problem.splits["train"], split))
    return times(search, other)


def _work(author: Author, split: str, options: Mapping[str, Json]) -> Mapping[str, Any]:
    with author.session() as session:
        return session.work(split, options)


def times(search: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How many times the work of one set of instances another is, at least 1.

    That is by the problem's own word, or by the sum of squared sizes, or by their number where one has no size.

    Args:
        search: what `coevo.sandbox.work.work_of` found of the one.
        other: the same of the other.
    """
    by = next(by for by in ("told", "size", "count") if search[by] is not None and other[by] is not None)
    return max(1.0, other[by] / search[by])


def shortage(search: Limits, search_seconds: float, other: Limits, seconds: float) -> str:
    """What to write in problem.toml where a program that may use up the limit of the search could not end elsewhere.

    Args:
        search: limits on the search split.
        search_seconds: CPU time that a program took there.
        other: limits on the other split.
        seconds: CPU time that the same program took on it.
    """
    needed = search.cpu_seconds * seconds / max(search_seconds, 1e-3)
    if needed <= _DOUBT * other.cpu_seconds:
        return ""
    return (
        f"a program that takes all {search.cpu_seconds:g} s of the search would take about {needed:.3g} s here, where "
        f"{other.cpu_seconds:.3g} s are allowed; write held_out_cpu_seconds in [limits]"
    )
