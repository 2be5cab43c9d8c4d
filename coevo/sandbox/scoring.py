"""The trusted side: what a candidate claims is checked, and the objective computed, in the run's process."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from coevo.sandbox.client import Sandbox
from coevo.sandbox.limits import Limits
from coevo.sandbox.problem import load_instances, load_problem
from coevo.sandbox.racing import Bar, Race, Track, mean


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a candidate is worth.

    Attributes:
        status: as in `coevo.sandbox.Outcome`.
        objective: mean over the instances, rounded to 5 decimals; None unless `ok`.
        per_instance: the objective of each instance in order, not rounded; empty unless `ok`.
        raced: whether it was evaluated against a bar.
        seen: of a raced one that is not `ok`, the objectives of the first instances, as far as they were seen.
        message: one line for a failure, else empty.
        stdout: the last 4 KB that the candidate printed.
        cpu_seconds: processor time of the candidate.
        seconds: wall-clock time of the candidate.
    """

    status: str
    objective: float | None
    per_instance: tuple[float, ...]
    message: str
    stdout: str
    cpu_seconds: float
    seconds: float
    raced: bool = False
    seen: tuple[float, ...] = ()


class Evaluator:
    """Evaluates sources on one split of the problem in a folder; `evaluate` may be called from many threads.

    ```python
    with Evaluator(folder, "train", "select_next_node") as evaluator:
        evaluation = evaluator.evaluate(source)
    ```
    """

    def __init__(
        self,
        problem_folder: Path,
        split: str,
        entry: str,
        *,
        limits: Limits | None = None,
        workers: int | None = None,
        options: Mapping[str, object] | None = None,
        namespaces: bool = True,
    ) -> None:
        """Load the problem here and in a sandbox. Arguments and errors are those of `Sandbox`."""
        file = problem_folder / "evaluate.py"
        self.sandbox = Sandbox(
            file, split, entry=entry, limits=limits, workers=workers, options=options, namespaces=namespaces
        )
        try:
            self._problem = load_problem(file)
            self._instances = load_instances(self._problem, file, split, options or {})
            self.track = Track(self._problem, self._instances)
        except BaseException:
            self.sandbox.close()
            raise

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def isolation(self) -> Mapping[str, bool]:
        """What the sandbox holds back on this system."""
        return self.sandbox.isolation

    def close(self) -> None:
        """End the sandbox."""
        self.sandbox.close()

    def evaluate(self, source: str, bar: Bar | None = None) -> Evaluation:
        """Run `source` on every instance and value the solutions.

        With a bar it is `outraced`, and stopped, as soon as it is certain that its objective would be worse. That needs
        a function `bound` in the problem; without one every candidate is evaluated to its end.

        Raises:
            UserError: the problem's `bound` is wrong.
            RunError: the sandbox itself failed.
            RuntimeError: it is closed.
        """
        race = Race(self.track, bar, self._value_of) if bar is not None and self.track.stages else None
        outcome = self.sandbox.run(source, race)
        status, values, message = outcome.status, list[float](), outcome.message
        if status == "ok":
            status, values, message = self._value(outcome.value, race.values if race else ())
        return Evaluation(
            status,
            mean(values) if status == "ok" else None,
            tuple(values),
            message,
            outcome.stdout,
            outcome.cpu_seconds,
            outcome.wall_seconds,
            race is not None,
            tuple(race.values) if race and status != "ok" else (),
        )

    def _value_of(self, index: int, solution: object) -> float:
        value = float(self._problem.objective(solution, self._instances[index]))
        if not math.isfinite(value):
            raise FloatingPointError(f"the objective is {value}")
        return value

    def _value(self, claim: object, known: Sequence[float]) -> tuple[str, list[float], str]:
        """Check a claim and value it; `known` are the values of its first solutions."""
        if not isinstance(claim, list):
            return "invalid_solution", [], "the answer holds no list of solutions"
        solutions = cast("list[object]", claim)
        if len(solutions) != len(self._instances):
            return "invalid_solution", [], f"{len(solutions)} solutions for {len(self._instances)} instances"
        values = list(known)
        for index, solution in enumerate(solutions[len(known) :], len(known)):
            try:
                value = self._value_of(index, solution)
            except FloatingPointError as error:
                return "non_finite", [], f"instance {index}: {error}"
            except ValueError as error:
                return "invalid_solution", [], f"instance {index}: {error}"
            except Exception as error:  # noqa: BLE001 - a solution of any shape may come
                return "invalid_solution", [], f"instance {index}: {type(error).__name__}: {error}"
            values.append(value)
        return "ok", values, ""
