"""Racing: a candidate is stopped as soon as it is certain that its objective is worse than a bar.

Certain means proved. The candidate hands its solutions over in stages; of the instances that it has solved the value
is known, of the others a bound that no solution beats. Where the mean of both, rounded like an objective, is worse
than the bar, the objective would be too: rounding and summation (`math.fsum`) keep the order. So nothing that is as
good as the bar is ever stopped, and whether a candidate is stopped depends on its solutions alone, not on how fast
anything was.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

from coevo.errors import CoevoError, UserError
from coevo.numerics.objectives import DECIMALS
from coevo.sandbox.claims import read_stage

SAID = "stopped, because its objective was certain to be worse than the bar"
"""The message of every candidate that was outraced: when it was stopped is not told, since that may differ."""

Bound: TypeAlias = Callable[[Any], float | str]

_STAGES = 16
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Bar:
    """The worst objective that is still of use.

    Attributes:
        objective: a candidate may be stopped only where it is certain to be worse than this.
        minimize: whether smaller is better.
    """

    objective: float
    minimize: bool


def mean(values: Sequence[float]) -> float:
    """The objective of a candidate that has `values` on the instances."""
    try:
        return round(math.fsum(values) / len(values), DECIMALS)
    except OverflowError:  # of the sum, not of the mean
        return round(math.fsum(value / len(values) for value in values), DECIMALS)


def stages(instances: int) -> tuple[int, ...]:
    """After how many of the instances a candidate hands over what it has: the first, then each sixteenth of all."""
    step = max(1, instances // _STAGES)
    return tuple(sorted({1, *range(step, instances, step)} - {instances}))


class Track:
    """The bounds of a set of instances: says when a race is lost.

    Attributes:
        stages: see `stages`; empty where there is no bound, so no race.
    """

    def __init__(self, problem: object, instances: Sequence[object]) -> None:
        """Take the instances; their bounds are computed when `lost` is first asked, which may take a second.

        Args:
            problem: that may have a function `bound`, of an instance; a text instead is what that function raised.
            instances: as `bound` knows them.
        """
        self._bound = cast("Bound | None", getattr(problem, "bound", None))
        self._instances = instances
        self._bounds: dict[bool, list[float]] = {}
        self._computing = threading.Lock()
        self.stages = stages(len(instances)) if callable(self._bound) else ()

    def bounds(self, minimize: bool) -> list[float]:
        """The bound of each instance.

        Raises:
            UserError: the problem's `bound` raises or gives no number.
            AuthorError: it takes too long, or ends its process.
        """
        with self._computing:
            if minimize not in self._bounds:
                self._bounds[minimize] = [
                    bound_of(self._bound, instance, index, minimize) for index, instance in enumerate(self._instances)
                ]
            return self._bounds[minimize]

    def compare(self, values: Sequence[float], minimize: bool) -> None:
        """Hold values of the first instances against their bounds.

        Raises:
            UserError: a value is better than its bound, or as `bounds`.
        """
        for index, (value, bound) in enumerate(zip(values, self.bounds(minimize), strict=False)):
            if value < bound if minimize else value > bound:
                raise UserError(
                    f"the problem's bound of instance {index} is {bound!r}, and a solution has {value!r}, which is "
                    "better; mend `bound` in evaluate.py, or take it out so that nothing is stopped early, and go on "
                    "with coevo resume"
                )

    def lost(self, values: Sequence[float], bar: Bar) -> bool:
        """Whether a candidate with these values on the first instances is certain to be worse than `bar`.

        Raises:
            UserError: the problem's `bound` is wrong, as `compare` says.
        """
        self.compare(values, bar.minimize)
        best = mean([*values, *self.bounds(bar.minimize)[len(values) :]])
        return best > bar.objective if bar.minimize else best < bar.objective

    def outraced(self, values: Sequence[float], bar: Bar) -> bool:
        """Whether a candidate with these values is stopped at a stage: what a race would end with."""
        return any(self.lost(values[:stage], bar) for stage in self.stages if stage <= len(values))


def bound_of(bound: Bound | None, instance: object, index: int, minimize: bool) -> float:
    """The problem's bound of an instance, weakened by what summation may differ in.

    Raises:
        UserError: it raises or gives no number.
    """
    assert bound is not None
    try:
        found = bound(instance)
        value = found if isinstance(found, str) else float(found)
    except CoevoError:
        raise
    except Exception as error:  # noqa: BLE001 - the problem's own code
        value = f"{type(error).__name__}: {error}"
    if isinstance(value, str):
        raise UserError(f"`bound` of evaluate.py raises for instance {index}: {value}")
    if math.isnan(value):
        raise UserError(f"`bound` of evaluate.py gives {value} for instance {index}; expected a number")
    slack = _SLACK * (1.0 + abs(value)) if math.isfinite(value) else 0.0
    return value - slack if minimize else value + slack


class Values(Protocol):
    """Values of solutions, up to the first that is refused."""

    @property
    def values(self) -> Sequence[float]:
        """Of each."""
        ...


class Valuing(Protocol):
    """Who checks and values solutions, as `coevo.sandbox.author.Session`."""

    def values(self, first: int, solutions: Sequence[object]) -> Values:
        """Of solutions of the instances from `first` on; with `first` 0 an evaluation begins."""
        ...


class Race:
    """One candidate against a bar, as its stages come in.

    Attributes:
        values: of the instances whose solutions were valid so far.
        lost: whether it is certain to be worse than the bar.
    """

    def __init__(self, track: Track, bar: Bar, valuing: Valuing) -> None:
        """Begin.

        Args:
            track: the bounds.
            bar: to be worse than.
            valuing: checks and values solutions.
        """
        self._track, self._bar, self._valuing = track, bar, valuing
        self._faulty = False
        self.values: list[float] = []
        self.lost = False

    @property
    def stages(self) -> tuple[int, ...]:
        """When the candidate hands over what it has."""
        return self._track.stages

    def begin(self) -> None:
        """Forget what came: the candidate is run again."""
        self._faulty, self.values, self.lost = False, [], False

    def look(self, claim: bytes) -> bool:
        """Look at stages that came in; True as soon as the race is lost.

        What is no list of solutions, or holds a bad one, is left to the end, where it is judged with all the rest.
        """
        for line in claim.removesuffix(b"\n").split(b"\n"):
            if self._faulty or self.lost:
                break
            solutions = read_stage(line)
            self._faulty = solutions is None
            if solutions:
                found = self._valuing.values(len(self.values), solutions).values
                self._faulty = len(found) < len(solutions)
                self.values += found
            # Only where a stage of the schedule is whole: the answer shall not depend on what else was sent.
            if not self._faulty and len(self.values) in self.stages:
                self.lost = self._track.lost(self.values, self._bar)
        return self.lost
