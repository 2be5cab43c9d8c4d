"""The whole check of one problem folder, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from coevo.errors import UserError
from coevo.sandbox import Author, AuthorError, Evaluator, Limits
from coevo_heuristics.checking.candidates import ENDLESS_SECONDS, answers, forgeries
from coevo_heuristics.checking.rows import Row
from coevo_heuristics.checking.static import check_references, check_splits, load_holes
from coevo_heuristics.checking.trials import Timing, Trials, compare
from coevo_heuristics.checking.trusted import check_functions, check_loading
from coevo_heuristics.growth import growth, shortage
from coevo_heuristics.problem import HoleKind, Problem
from coevo_heuristics.rendering import Template


class Check:
    """A check of the problem in `folder`; `rows` does the work, `timing` is there once it is through.

    Raises:
        UserError: the folder is no problem, or problem.toml or evaluate.py cannot be read.
    """

    def __init__(self, folder: Path, workers: int | None = None) -> None:
        """Read the folder.

        Args:
            folder: with problem.toml, evaluate.py and the templates.
            workers: candidates evaluated at once; None is one per core.
        """
        self.problem = Problem(folder)
        if not (folder / "evaluate.py").is_file():
            raise UserError(f"no problem at {str(folder / 'evaluate.py')!r}; expected an evaluate.py")
        self.author = Author(folder / "evaluate.py", None, limits=self.problem.limits(), watch=True)
        try:
            self.author.wait()
        except BaseException:
            self.author.close()
            raise
        self.timing: Timing | None = None
        self._workers = workers

    def rows(self) -> Iterator[Row]:
        """Look at everything, in the order of what a user would mend first."""
        with self.author:
            yield from self._rows()

    def _rows(self) -> Iterator[Row]:
        templates, rows = load_holes(self.problem)
        yield from rows
        yield from check_loading(self.author)
        loads = True
        for row in check_splits(self.problem, self.author):
            loads = loads and not (row.state == "failure" and row.name == "split train")
            yield row
        yield from check_references(self.problem, self.author)
        if not templates or not loads:
            yield Row("skipped", "candidates", "nothing can be evaluated before the above is mended")
            return
        limits = self.problem.limits()
        try:
            with self._evaluator(limits) as evaluator:
                yield from self._candidates(Trials(self.problem, evaluator), templates, limits)
        except (UserError, AuthorError) as error:
            yield Row("failure", "evaluate.py" if isinstance(error, AuthorError) else "sandbox", str(error))

    def _evaluator(self, limits: Limits, split: str = "") -> Evaluator:
        split = split or self.problem.splits["train"]
        return Evaluator(self.problem.folder, split, self.problem.table.entry, limits=limits, workers=self._workers)

    def _candidates(self, trials: Trials, templates: dict[HoleKind, Template], limits: Limits) -> Iterator[Row]:
        objectives: dict[HoleKind, float] = {}
        for template in list(templates.values())[:1]:
            yield from check_functions(trials.evaluator, template)
        for kind, template in templates.items():
            rows, objective = trials.seed(template)
            yield from rows
            if objective is not None:
                objectives[kind] = objective
        for kind, objective in objectives.items():
            yield from trials.examples(templates[kind], objective)
        # The endless ones get limits of their own, because nothing is learnt from waiting longer.
        short = replace(limits, cpu_seconds=min(limits.cpu_seconds, ENDLESS_SECONDS), wall_seconds=limits.wall)
        endless: list[Row] = []
        with self._evaluator(short) as evaluator:
            for kind, objective in objectives.items():
                sent = [c for c in answers(templates[kind], limits) if c.endless]
                endless += Trials(self.problem, evaluator).hostile(templates[kind], sent, objective)
        for kind, objective in objectives.items():
            sent = [c for c in answers(templates[kind], limits) if not c.endless]
            yield from trials.hostile(templates[kind], sent, objective)
        yield from endless
        if not objectives:
            yield Row("skipped", "other candidates", "they are made from the seed, which fails")
            return
        first = self.problem.hole() if self.problem.hole() in objectives else next(iter(objectives))
        yield from trials.hostile(templates[first], forgeries(), objectives[first])
        after = trials.evaluator.evaluate(templates[first].source)
        if after.objective != objectives[first]:
            said = after.message or f"objective {after.objective} instead of {objectives[first]}"
            yield Row("failure", f"{first}: the seed after all that", said, after.status, "ok")
        else:
            yield Row("ok", f"{first}: the seed after all that", "the same objective", "ok", "ok")
        self.timing = trials.timing(templates[first])
        for split, actual in self.problem.table.splits.items():
            if actual != self.problem.splits["train"]:
                yield self._held_out(trials, templates[first], split, actual)

    def _held_out(self, trials: Trials, template: Template, split: str, actual: str) -> Row:
        """The seed on another split, where a run judges its best at the end."""
        name = f"{template.kind}: the seed on split {split}"
        try:
            search = trials.evaluator.sandbox.limits
            limits = self.problem.held_out_limits(search, actual, growth(self.problem, actual, {}))
            with self._evaluator(limits, actual) as evaluator:
                found = evaluator.evaluate(template.source)
        except (UserError, AuthorError) as error:
            return Row("failure", name, str(error))
        if found.status == "timeout":
            said = f"{found.message}; held_out_cpu_seconds of [limits] is for these splits"
            return Row("failure", name, said, found.status, "ok")
        if found.status != "ok" or found.objective is None:
            return Row("failure", name, found.message, found.status, "ok")
        if self.timing and (said := shortage(search, self.timing.cpu_seconds, limits, found.cpu_seconds)):
            return Row("warning", name, said, "ok", "ok")
        return Row(*compare(self.problem, split, name, found.objective), "ok", "ok")
