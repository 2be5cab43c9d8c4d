"""The trusted side: what a candidate claims is checked, and the objective computed, in the author's process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from coevo.errors import CoevoError
from coevo.sandbox.author import Author, Session
from coevo.sandbox.client import Sandbox
from coevo.sandbox.limits import Limits
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
        """Load the problem in a process of its own and in a sandbox. Arguments and errors are those of `Sandbox`."""
        file = problem_folder / "evaluate.py"
        # Both load at once. Why one cannot is better told by this one, which waits for nothing else.
        self.author = Author(file, split, limits=limits, options=options)
        try:
            self.sandbox = self._sandbox(file, split, entry, limits, workers, options, namespaces)
        except BaseException:
            self.author.close()
            raise
        self.track = Track(_Bounds(self.author), range(self.author.instances))

    def _sandbox(
        self,
        file: Path,
        split: str,
        entry: str,
        limits: Limits | None,
        workers: int | None,
        options: Mapping[str, object] | None,
        namespaces: bool,
    ) -> Sandbox:
        try:
            sandbox = Sandbox(
                file, split, entry=entry, limits=limits, workers=workers, options=options, namespaces=namespaces,
                waiting=self.author.check,
            )  # fmt: skip
        except CoevoError:
            self.author.wait()
            raise
        try:
            self.author.wait()
        except BaseException:
            sandbox.close()
            raise
        return sandbox

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def isolation(self) -> Mapping[str, bool]:
        """What the sandbox holds back on this system."""
        return self.sandbox.isolation

    def close(self) -> None:
        """End both processes; an `evaluate` in another thread raises `RuntimeError`."""
        self.author.close()
        self.sandbox.close()

    def evaluate(self, source: str, bar: Bar | None = None) -> Evaluation:
        """Run `source` on every instance and value the solutions.

        With a bar it is `outraced`, and stopped, as soon as it is certain that its objective would be worse. That needs
        a function `bound` in the problem; without one every candidate is evaluated to its end.

        Raises:
            UserError: the problem's `bound` is wrong.
            AuthorError: the problem's own code takes too long, or ends its process.
            RunError: the sandbox itself failed.
            RuntimeError: it is closed.
        """
        with self.author.session() as session:
            race = Race(self.track, bar, session) if bar is not None and self.track.stages else None
            outcome = self.sandbox.run(source, race)
            status, values, message = outcome.status, list[float](), outcome.message
            if status == "ok":
                status, values, message = self._value(outcome.value, race.values if race else (), session)
        return Evaluation(
            status=status,
            objective=mean(values) if status == "ok" else None,
            per_instance=tuple(values),
            message=message,
            stdout=outcome.stdout,
            cpu_seconds=outcome.cpu_seconds,
            seconds=outcome.wall_seconds,
            raced=race is not None,
            seen=tuple(race.values) if race and status != "ok" else (),
        )

    def value(self, solutions: Sequence[object]) -> Evaluation:
        """Check and value solutions that no candidate has made, one for each instance, as they come out of JSON.

        Raises:
            AuthorError: the problem's own code takes too long, or ends its process.
        """
        with self.author.session() as session:
            status, values, message = self._value(list(solutions), (), session)
        return Evaluation(
            status=status,
            objective=mean(values) if status == "ok" else None,
            per_instance=tuple(values),
            message=message,
            stdout="",
            cpu_seconds=0.0,
            seconds=0.0,
        )

    def _value(self, claim: object, known: Sequence[float], session: Session) -> tuple[str, list[float], str]:
        """Check a claim and value it; `known` are the values of its first solutions."""
        if not isinstance(claim, list):
            return "invalid_solution", [], "the answer holds no list of solutions"
        solutions = cast("list[object]", claim)
        if len(solutions) != self.author.instances:
            return "invalid_solution", [], f"{len(solutions)} solutions for {self.author.instances} instances"
        found = session.values(len(known), solutions[len(known) :])
        return found.status, [*known, *found.values] if found.status == "ok" else [], found.message


class _Bounds:
    """The problem's `bound` of the instance of an index, if it has one, as the author's process tells it."""

    def __init__(self, author: Author) -> None:
        self._author = author
        self._found: list[float | str] | None = None
        self.bound = self._of if author.has_bound else None

    def _of(self, index: int) -> float | str:
        # `Track` asks for all, one after the other.
        if self._found is None:
            with self._author.session() as session:
                self._found = session.bounds()
        return self._found[index]
