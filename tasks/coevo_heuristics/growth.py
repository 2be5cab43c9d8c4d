"""How much more work the instances of a split are than those of the search split.

A limit that is fair to a search would fail an honest program on a split with more or larger instances. What a program
needs there cannot be known, and measuring it would make limits differ from machine to machine; so the rule is one of
numbers and sizes: an instance counts as the square of its size, because most heuristics look at all that is left again
at every step. An evaluate.py whose instances do not show their size (some keep what others compute) has a function
`work`, which takes the rule's place.
"""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

from coevo.errors import UserError
from coevo.records import Json
from coevo.sandbox import Limits
from coevo.sandbox.problem import load_instances, load_problem
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
    """
    file = problem.folder / "evaluate.py"
    # What an author prints is no output of a command.
    with redirect_stdout(sys.stderr):
        functions = load_problem(file)
        search, other = (load_instances(functions, file, name, options) for name in (problem.splits["train"], split))
        work: Callable[[object], float] | None = getattr(functions, "work", None)
        if work is None:
            return growth_of(search, other)
        return max(1.0, _told(work, other, file) / _told(work, search, file))


def _told(work: Callable[[object], float], instances: Sequence[object], file: Path) -> float:
    """The work of instances by the problem's own word."""
    try:
        total = math.fsum(float(work(instance)) for instance in instances)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"problem {str(file)!r}: `work` raises {said}") from error
    if not (math.isfinite(total) and total > 0.0):
        what = f"`work` gives {total} for {len(instances)} instances"
        raise UserError(f"problem {str(file)!r}: {what}; expected more than 0")
    return total


def growth_of(search: Sequence[object], other: Sequence[object]) -> float:
    """How many times the work of one set of instances another is, at least 1.

    That is the sum of squared sizes, or their number where one has no size.
    """
    works = [_work(search), _work(other)]
    here, there = works if None not in works else (len(search), len(other))
    assert here is not None
    assert there is not None
    return max(1.0, there / here)


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


def _work(instances: Sequence[object]) -> int | None:
    try:
        return sum(_size(instance) ** 2 for instance in instances)
    except Exception:  # noqa: BLE001 - an instance may be anything: one that cannot be pickled has no size
        return None


class _Counter:
    """A file that only counts what is written."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size


def _size(instance: object) -> int:
    """Bytes of an instance as a pickle, none of which is kept."""
    counter = _Counter()
    pickle.Pickler(counter, protocol=5).dump(instance)
    return counter.bytes
