"""`coevo bench sandbox --task NAME`: evaluations a second of a problem, in the sandbox and by a plain evaluator.

Ours is the whole way of a candidate: forked from the zygote, confined, solved with the problem's evaluate.py, its
solutions checked and valued by the run. The plain evaluator is `plain.py` of the problem's folder, called in this
process: nothing confines the candidate and nothing is checked, so it is favoured. Rounds alternate, because a busy
machine must slow all of them.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol, cast

from coevo.errors import UserError
from coevo.host.config import FOLDER_TASK, problem_folder
from coevo.host.discovery import load
from coevo.host.registry import Registry
from coevo.optional import offers
from coevo.records import Json
from coevo.sandbox import Evaluation, Evaluator, Limits
from coevo.sandbox.problem import load_instances, load_problem
from coevo.tools.bench.plain import PLAIN, Reference, load_plain
from coevo.tools.bench.rounds import spread

AT_ONCE = 16
_SECONDS = 1.0  # that each way takes in a round, about
_FEWEST, _MOST = 2, 64
_APART = "import sys\n"
"""With this a program gets a process of its own, since it could reach more than it computes with."""


class _Table(Protocol):
    name: str
    entry: str


class _Problem(Protocol):
    @property
    def folder(self) -> Path: ...
    @property
    def table(self) -> _Table: ...
    @property
    def splits(self) -> Mapping[str, str]: ...
    def limits(self, cpu_seconds: float | None = None, memory_mb: int | None = None) -> Limits: ...


class _Template(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def source(self) -> str: ...


class ProgramTask(Protocol):
    """A task whose answers are programs for the problem in a folder, as the tasks of coevo_heuristics are.

    Attributes:
        problem: its folder, with evaluate.py; the entry of a program; splits; limits of a candidate.
        template: the module with the seed in its hole.
    """

    @property
    def problem(self) -> _Problem: ...  # noqa: D102 - above
    @property
    def template(self) -> _Template: ...  # noqa: D102 - above


@dataclass(frozen=True, slots=True)
class _Rates:
    """Evaluations a second in one round; `plain` is None without a plain evaluator."""

    one: float
    apart: float
    parallel: float
    plain: float | None


def bench_evaluations(
    task: str, rounds: int = 5, candidates: int | None = None, options: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Times the seed heuristic of a problem on its search split, spelt differently each time.

    Args:
        task: a name, or the folder of a problem.
        rounds: in each, candidates one at a time, `AT_ONCE` at a time, and plainly.
        candidates: one at a time in a round; as many, rounded up to whole `AT_ONCE`, at once. None takes about a
            second for each.
        options: of the task, by its name: `{"tsp_construct": {"hole": "function"}}`.

    Returns:
        `ratio`: evaluations a second one at a time over those of the plain evaluator, the median over the rounds;
        `ratio_min`, `ratio_max`; the same with `AT_ONCE` at a time as `parallel_ratio`. `apart_ratio`: how much slower
        programs are, one at a time, that get a process of their own. `one_per_second`, `apart_per_second`,
        `parallel_per_second`, `plain_per_second`, medians. Without plain.py what it would give is left out.

    Raises:
        UserError: no such task, it has no programs, its seed fails, or plain.py cannot be used.
        CheckFailedError: the plain evaluator comes to another objective.
    """
    if rounds < 1 or (candidates is not None and candidates < 1):
        raise UserError(f"rounds {rounds} and candidates {candidates} must be 1 or more")
    chosen, given, made = _make(task, options or {})
    problem, source = made.problem, made.template.source
    split = problem.splits["train"]
    instance_options: dict[str, Json] = given.get("instance_options") or {}
    file = problem.folder / "evaluate.py"
    plain = load_plain(problem.folder / PLAIN)
    with Evaluator(
        problem.folder,
        split,
        problem.table.entry,
        limits=problem.limits(given.get("cpu_seconds"), given.get("memory_mb")),
        workers=given.get("workers") or AT_ONCE,
        options=instance_options,
    ) as evaluator:
        seed = _checked(evaluator.evaluate(source), chosen)
        reference = None
        if plain is not None:
            instances = load_instances(load_problem(file), file, split, instance_options)
            reference = Reference(
                plain=plain,
                source=source,
                entry=problem.table.entry,
                instances=instances,
                expected=seed.per_instance,
                seconds=_SECONDS,
            )
        race = _Race(evaluator, _spellings(source), reference, chosen, candidates)
        found = [race.round(number) for number in range(rounds)]
        lacking = [name for name, holds in evaluator.isolation.items() if not holds]
        return {
            **_ratios(found),
            "one_per_second": median(rates.one for rates in found),
            "apart_per_second": median(rates.apart for rates in found),
            "parallel_per_second": median(rates.parallel for rates in found),
            **_plain_rate(found, reference, problem.folder),
            "at_once": evaluator.sandbox.workers,
            "cores": os.cpu_count() or 1,
            "task": chosen if chosen != FOLDER_TASK else problem.table.name,
            "hole": made.template.kind,
            "instances": len(seed.per_instance),
            "objective": seed.objective,
            "sandbox": f"no isolation of {', '.join(lacking)}" if lacking else "fully isolated",
        }


def _make(task: str, options: Mapping[str, Json]) -> tuple[str, dict[str, Any], ProgramTask]:
    """The name of the task in the registry, its options, checked, and the task, which is not started."""
    tasks = cast("Registry[object]", load().registries().tasks)
    folder = problem_folder(task, tasks)
    name = FOLDER_TASK if folder is not None else tasks.entry(task).name
    for owner, table in options.items():
        if owner != name or not isinstance(table, dict):
            raise UserError(f"--set got {owner!r}: this bench takes options of its task, {name}.option=value")
    given = dict(cast("dict[str, Json]", options.get(name, {})))
    if folder is not None:
        given["folder"] = folder
    made = tasks.create(name, given)
    if not offers(made, ProgramTask):
        raise UserError(f"task {name!r} has no programs to evaluate; expected a problem folder, or the name of one")
    return name, tasks.validate(name, given), made


def _checked(evaluation: Evaluation, task: str) -> Evaluation:
    if evaluation.status != "ok":
        raise UserError(f"task {task!r}: the seed heuristic ends with {evaluation.status}: {evaluation.message}")
    return evaluation


def _spellings(source: str) -> Iterator[str]:
    """The same program in ever other words, so that nobody could answer from what was seen before."""
    return (f"{source}\n# candidate {number}\n" for number in itertools.count())


class _Race:
    """Rounds of all ways."""

    def __init__(
        self,
        evaluator: Evaluator,
        sources: Iterator[str],
        reference: Reference | None,
        task: str,
        candidates: int | None,
    ) -> None:
        self._evaluator = evaluator
        self._sources = sources
        self._reference = reference
        self._task = task
        began = perf_counter()
        self._timed(AT_ONCE)
        seconds = (perf_counter() - began) / AT_ONCE
        self._alone = candidates or max(_FEWEST, min(_MOST, math.ceil(_SECONDS / seconds)))
        self._together = AT_ONCE * math.ceil(self._alone / AT_ONCE)

    def round(self, number: int) -> _Rates:
        """One of each; every other round backwards, so that none always follows the same."""
        ways: list[tuple[str, Callable[[], float]]] = [
            ("one", lambda: self._timed(1, self._alone)),
            ("apart", lambda: self._timed(1, self._alone, _APART)),
            ("parallel", lambda: self._timed(AT_ONCE, self._together)),
        ]
        if self._reference is not None:
            ways.append(("plain", self._reference.rate))
        rates = {name: way() for name, way in (reversed(ways) if number % 2 else ways)}
        return _Rates(rates["one"], rates["apart"], rates["parallel"], rates.get("plain"))

    def _timed(self, threads: int, count: int = AT_ONCE, also: str = "") -> float:
        """Evaluations a second of `count` candidates, `threads` at a time, each with a text behind it."""
        sources = [source + also for source in itertools.islice(self._sources, count)]
        with ThreadPoolExecutor(threads) as pool:
            began = perf_counter()
            for evaluation in pool.map(self._evaluator.evaluate, sources):
                _checked(evaluation, self._task)
            return count / (perf_counter() - began)


def _ratios(found: Sequence[_Rates]) -> dict[str, Json]:
    """Ours over plain within each round: median, smallest and largest. And without a process of its own over with."""
    result: dict[str, Json] = {"apart_ratio": median(rates.one / rates.apart for rates in found)}
    plain = [rates.plain for rates in found if rates.plain is not None]
    if plain:
        result |= spread([rates.one for rates in found], plain)
        result |= spread([rates.parallel for rates in found], plain, "parallel_ratio")
    return result


def _plain_rate(found: Sequence[_Rates], reference: Reference | None, folder: Path) -> dict[str, Any]:
    if reference is None:
        return {"plain": f"not compared: add {str(folder / PLAIN)!r} with evaluate(function, instance) -> objective"}
    shown = {"plain_per_second": median(rates.plain for rates in found if rates.plain is not None)}
    part = len(reference.instances)
    return {**shown, "plain": "all instances" if part == reference.total else f"{part} of {reference.total}, scaled"}
