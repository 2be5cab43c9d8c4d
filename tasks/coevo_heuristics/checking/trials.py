"""Runs candidates through the parser, the template and the sandbox, and says whether each ended as it should."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import cast

from coevo.errors import UserError
from coevo.sandbox import Evaluation, Evaluator
from coevo.sandbox.racing import mean
from coevo_heuristics.checking.candidates import Candidate
from coevo_heuristics.checking.rows import Row, State
from coevo_heuristics.parser import Answer, parse_expression, parse_function
from coevo_heuristics.problem import Problem, ReferenceTable
from coevo_heuristics.rendering import Template

_REPEATS = 5
_PATIENCE = 10.0  # seconds that timing may take, each of its two parts
_NEAR_THE_LIMIT = 0.5
_ROUNDING = 1e-5  # objectives have five decimals


@dataclass(frozen=True, slots=True)
class Timing:
    """What evaluations cost here.

    Attributes:
        seconds: wall-clock time of one evaluation alone, median.
        cpu_seconds: its processor time, median.
        per_second: evaluations a second, one after the other.
        per_second_parallel: evaluations a second with `workers` at once.
        workers: how many run at once.
    """

    seconds: float
    cpu_seconds: float
    per_second: float
    per_second_parallel: float
    workers: int


class Trials:
    """Candidates for one problem on its split `train`."""

    def __init__(self, problem: Problem, evaluator: Evaluator) -> None:
        self.problem = problem
        self.evaluator = evaluator

    def answer(self, template: Template, text: str) -> tuple[Answer, Evaluation | None]:
        """Parse a model's answer, fill it in and evaluate it; no evaluation where nothing was parsed."""
        table = self.problem.table.holes[template.kind]
        if template.kind == "expression":
            target = table.signature.partition("=")[0].strip()
            answer = parse_expression(text, target, {name for name, _ in table.arguments})
        else:
            answer = parse_function(text, template.entry)
        if answer.status != "ok":
            return answer, None
        return answer, self.evaluator.evaluate(template.render(answer.text))

    def seed(self, template: Template) -> tuple[list[Row], float | None]:
        """The template as it is, and its seed as an answer; with the objective, None if it fails."""
        name = f"{template.kind}: the seed"
        found = self.evaluator.evaluate(template.source)
        if found.status != "ok" or found.objective is None:
            return [Row("failure", name, found.message, found.status, "ok")], None
        rows = [Row(*compare(self.problem, "train", name, found.objective), "ok", "ok")]
        again = self.evaluator.evaluate(template.source)
        if again.per_instance != found.per_instance:
            said = f"gave {again.objective} the second time; draw random numbers from a fixed seed in each `solve`"
            rows.append(Row("failure", f"{name} again", said, again.status, "ok"))
        answer, answered = self.answer(template, template.seed)
        if answered is None:
            rows.append(Row("failure", f"{name} as an answer", answer.message, answer.status, "ok"))
        elif answered.objective != found.objective:
            said = answered.message or f"objective {answered.objective} instead of {found.objective}"
            rows.append(Row("failure", f"{name} as an answer", said, answered.status, "ok"))
        limit = self.evaluator.sandbox.limits.cpu_seconds
        if found.cpu_seconds > _NEAR_THE_LIMIT * limit:
            said = f"takes {found.cpu_seconds:.3g} of {limit:g} s of CPU time; a slower machine would refuse it"
            rows.append(Row("warning", f"{name} and cpu_seconds", said))
        if self.evaluator.track.stages:
            rows.append(self._bound(f"{name} and bound", found))
        return rows, found.objective

    def _bound(self, name: str, found: Evaluation) -> Row:
        """Whether the problem's `bound`, by which candidates are stopped, is none that the seed beats."""
        track, minimize = self.evaluator.track, self.problem.table.direction == "minimize"
        try:
            track.compare(found.per_instance, minimize)
        except UserError as error:
            return Row("failure", name, str(error))
        bound = mean(track.bounds(minimize)) + 0.0  # -0.0 is 0.0
        return Row("ok", name, f"objective {found.objective}, bound {bound}: not beaten on any instance")

    def better(self, one: float, other: float) -> bool:
        """Whether objective `one` is better than `other`, beyond rounding."""
        return _better(self.problem, one, other)

    def examples(self, template: Template, seed: float) -> Iterator[Row]:
        """The examples that a prompt may show: valid, and not better than the baseline."""
        baseline = next((r for r in references(self.problem, "train") if r.baseline), None)
        name, value = (baseline.name, baseline.value) if baseline else ("the seed", seed)
        shown = self.problem.table.holes[template.kind].examples
        for example in shown:
            where = f"{template.kind}: example {example!r}"
            answer, found = self.answer(template, example)
            if found is None or found.status != "ok" or found.objective is None:
                status, said = (answer.status, answer.message) if found is None else (found.status, found.message)
                yield Row("failure", where, said, status, "ok")
            elif self.better(found.objective, value):
                said = f"objective {found.objective} is better than {name} ({value}): the prompt gives it away"
                yield Row("warning", where, said, "ok", "ok")
            else:
                yield Row("ok", where, f"objective {found.objective}, not better than {name}", "ok", "ok")

    def hostile(self, template: Template, candidates: Sequence[Candidate], seed: float) -> list[Row]:
        """One row for each candidate; as many run at once as the sandbox runs."""
        with ThreadPoolExecutor(self.evaluator.sandbox.workers) as pool:
            return list(pool.map(partial(self._send, template, seed), candidates))

    def _send(self, template: Template, seed: float, candidate: Candidate) -> Row:
        if candidate.forge is not None:
            outcome = self.evaluator.sandbox.run(template.source)
            if outcome.status != "ok":
                said = f"the seed, whose solutions are changed, ends differently this time: {outcome.message}"
                return Row("skipped", candidate.name, said, outcome.status, candidate.expected)
            solutions = cast("list[object]", outcome.value)
            found = self.evaluator.value([candidate.forge(json.dumps(one)) for one in solutions])
        else:
            answer, found = self.answer(template, candidate.text)
            if found is None:
                said = f"the parser did not take it: {answer.message}"
                return Row("skipped", candidate.name, said, answer.status, candidate.expected)
        if found.status == "ok" and found.objective is not None:
            return self._accepted(candidate, found.objective, seed)
        fits = found.status == candidate.expected or not candidate.expected
        # Refused for another reason than the real one: safe, but the model is told something else.
        return Row(
            "ok" if fits else "warning", candidate.name, found.message, found.status, candidate.expected or "not ok"
        )

    def _accepted(self, candidate: Candidate, objective: float, seed: float) -> Row:
        expected = candidate.expected or "not ok"
        if candidate.expected == "out_of_memory" and sys.platform != "linux":
            return Row("warning", candidate.name, "memory is not limited on this system", "ok", expected)
        said = f"was accepted with objective {objective:.10g}"
        if self.better(objective, seed):
            return Row("failure", candidate.name, f"{said}, better than the seed's {seed:.10g}", "ok", expected)
        said += ", no better than the seed"
        if candidate.accepted == "warning":
            said += "; right only where such numbers are names and no places"
        return Row(candidate.accepted, candidate.name, said, "ok", expected)

    def timing(self, template: Template) -> Timing:
        """Time the seed: alone, then with every worker busy."""
        workers, source = self.evaluator.sandbox.workers, template.source
        alone: list[float] = []
        cpu: list[float] = []
        began = time.perf_counter()
        while len(alone) < _REPEATS and (not alone or time.perf_counter() - began < _PATIENCE):
            start = time.perf_counter()
            cpu.append(self.evaluator.evaluate(source).cpu_seconds)
            alone.append(time.perf_counter() - start)
        seconds = statistics.median(alone)
        rounds = max(1, min(_REPEATS, int(_PATIENCE / seconds)))
        began = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self.evaluator.evaluate, [source] * (workers * rounds)))
        parallel = workers * rounds / (time.perf_counter() - began)
        return Timing(seconds, statistics.median(cpu), 1 / seconds, parallel, workers)


def references(problem: Problem, split: str) -> list[ReferenceTable]:
    """The references of a split, by either of its names; the baseline's name counts on every split."""
    table = problem.table
    actual = table.splits.get(split, split)
    return [r for r in table.references if table.splits.get(r.split, r.split) == actual]


def compare(problem: Problem, split: str, name: str, objective: float) -> tuple[State, str, str]:
    """State, name and text of a row that holds the seed's objective against the references of its split."""
    known = references(problem, split)
    proved = next((r for r in known if r.proved and _better(problem, objective, r.value)), None)
    if proved:
        return "failure", name, f"{objective} is better than {proved.name} ({proved.value}), which is said to be proved"
    baselines = {r.name for r in problem.table.references if r.baseline}
    baseline = next((r for r in known if r.name in baselines), None)
    if baseline is None:
        return "ok", name, f"objective {objective}"
    if math.isclose(objective, baseline.value, rel_tol=1e-9, abs_tol=_ROUNDING):
        return "ok", name, f"objective {objective}, as {baseline.name} should have"
    said = f"objective {objective}, and the baseline {baseline.name} is said to have {baseline.value}"
    return "warning", name, f"{said}; right only if they are two heuristics"


def _better(problem: Problem, one: float, other: float) -> bool:
    return (1 if problem.table.direction == "minimize" else -1) * (other - one) > _ROUNDING
