"""How much work the instances of a split are for a program: by the problem's own word, or else by their size."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from coevo.errors import UserError
from coevo.sandbox.limits import Limits
from coevo.sandbox.problem import Problem, load_instances
from coevo.sandbox.trust import author_code


def work_of(
    problem: Problem, file: Path, split: str, options: Mapping[str, object], limits: Limits
) -> dict[str, object]:
    """`count` of the instances; `told`, the sum of what `work` says; `size`, where there is no `work`.

    Raises:
        UserError: there is no such split or option, or `work` is wrong.
        AuthorLeft: the author's code raised what ends an interpreter.
    """
    with author_code(limits):
        instances = load_instances(problem, file, split, options)
    work = cast("Callable[[object], float] | None", getattr(problem, "work", None))
    with author_code(limits):
        told = None if work is None else _told(work, instances, file)
        size = size_of(instances) if work is None else None
    return {"count": len(instances), "told": told, "size": size}


def size_of(instances: Sequence[object]) -> int | None:
    """The sum of the squared sizes of instances, each in bytes of its pickle; None where one has none."""
    try:
        return sum(_bytes(instance) ** 2 for instance in instances)
    except Exception:  # noqa: BLE001 - an instance may be anything: one that cannot be pickled has no size
        return None


def _told(work: Callable[[object], float], instances: Sequence[object], file: Path) -> float:
    try:
        total = math.fsum(float(work(instance)) for instance in instances)
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"problem {str(file)!r}: `work` raises {said}") from error
    if not (math.isfinite(total) and total > 0.0):
        what = f"`work` gives {total} for {len(instances)} instances"
        raise UserError(f"problem {str(file)!r}: {what}; expected more than 0")
    return total


class _Counter:
    """A file that only counts what is written."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size


def _bytes(instance: object) -> int:
    """Bytes of an instance as a pickle, none of which is kept."""
    counter = _Counter()
    pickle.Pickler(counter, protocol=5).dump(instance)
    return counter.bytes
