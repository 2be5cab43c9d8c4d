"""The task: one episode is one attempt at a heuristic, one example is the whole instance set of a split.

What two equal runs say must be equal, so nothing that is measured (seconds, addresses in messages) is in a
result.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence

from coevo.errors import UserError
from coevo.host.registry import Option
from coevo.interfaces import Brief
from coevo.machine.places import expanded
from coevo.numerics.objectives import DECIMALS
from coevo.records import BAR, Completion, Context, EpisodeResult, Example, Json, Request, Rollout
from coevo.sandbox import AuthorError, Bar, Evaluation, Evaluator, Limits
from coevo_heuristics.briefing import PROMPT, make_brief
from coevo_heuristics.cache import EvaluationCache, Kept, default_folder
from coevo_heuristics.canonical import code_key
from coevo_heuristics.growth import growth
from coevo_heuristics.identity import NoIdentityError, evaluator_key
from coevo_heuristics.memory import Memory
from coevo_heuristics.options import check_instance_options, nested_options
from coevo_heuristics.parser import Answer, parse_expression, parse_function
from coevo_heuristics.problem import MOST_WORKERS, HoleKind, HoleTable, Problem
from coevo_heuristics.rendering import load_template

TRAIN = "train"
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")


class HeuristicTask:
    """Design a heuristic for the problem in a folder.

    Usage::

        task = HeuristicTask("tasks/coevo_heuristics/problems/tsp_construct", hole="expression")
        task.start()
        result = task.judge(" d_current", "train")
        task.close()
    """

    def __init__(
        self,
        folder: str,
        hole: HoleKind | None = None,
        workers: int | None = None,
        cpu_seconds: float | None = None,
        memory_mb: int | None = None,
        instance_options: dict[str, Json] | None = None,
        cache: bool = True,
    ) -> None:
        """Read the folder; nothing is evaluated before `start`.

        Args:
            folder: with problem.toml, evaluate.py and the templates.
            hole: what the model fills in, `expression` or `function`; None takes the problem's own.
            workers: candidates evaluated at once; None is one per core.
            cpu_seconds: processor time of a candidate on all instances; None takes the problem's.
            memory_mb: memory of a candidate; None takes the problem's.
            instance_options: keyword arguments of the problem's `instances`, such as `count`. The brief
                then lists no reference values, because they belong to the full set.
            cache: whether results are kept on disk, for later runs, and taken from there.

        Raises:
            UserError: the folder is no problem, or something in it is wrong.
            ValueError: a number is not positive, or `workers` is more than any machine has.
        """
        for name, value in (("workers", workers), ("cpu_seconds", cpu_seconds), ("memory_mb", memory_mb)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be greater than 0, got {value}")
        if workers is not None and workers > MOST_WORKERS:
            raise ValueError(f"workers must be at most {MOST_WORKERS}, got {workers}")
        self.problem = Problem(expanded(folder))
        self.template = load_template(self.problem, self.problem.hole(hole))
        self._limits = {self.problem.splits[TRAIN]: self.problem.limits(cpu_seconds, memory_mb)}
        self._workers = workers
        self._options = dict(instance_options or {})
        check_instance_options(self.problem, self._options)
        self._brief = make_brief(self.problem, self.template, references=not self._options)
        self._arguments = frozenset(name for name, _ in self._brief.arguments)
        self._lock = threading.Lock()
        self._evaluators: dict[str, Evaluator] = {}
        folder_of_cache = default_folder() if cache else None
        self._kept = None if folder_of_cache is None else Kept(EvaluationCache(folder_of_cache), self._identity)
        self._memory = Memory(self._evaluator, self._kept)

    @staticmethod
    def nested_options(folder: str = "") -> list[Option]:
        """What `instance_options` may hold for the problem in a folder, for `coevo options`; nothing without one."""
        return nested_options(expanded(folder)) if folder else []

    def start(self) -> None:
        """Start the sandbox of the search split and evaluate the seed heuristic there.

        Raises:
            UserError: the seed fails, or `objective` does, so no candidate could be judged.
        """
        split, code = self.problem.splits[TRAIN], self.template.source
        try:
            seed = self._evaluator(split).evaluate(code)
        except AuthorError as error:
            raise UserError(f"problem {self.problem.table.name!r}: {error}") from None
        if seed.status != "ok":
            raise UserError(
                f"problem {self.problem.table.name!r}: the seed heuristic in "
                f"{str(self.problem.folder / self._hole.template)!r} fails on split 'train': "
                f"{seed.status}: {seed.message}"
            )
        program = code_key(code, self.template.entry.name)
        self._memory.learn(split, program, seed)
        if self._kept is not None:
            # The seed is evaluated whatever is known, and so tells whether what is known still holds.
            self._kept.compare(split, program, code, seed)

    def describe(self) -> Mapping[str, str]:
        """How far candidates are shut in, once the sandbox has started."""
        with self._lock:
            evaluators = list(self._evaluators.values())
        if not evaluators:
            return {}
        lacking = [name for name, holds in evaluators[0].isolation.items() if not holds]
        return {"sandbox": "fully isolated" if not lacking else f"WEAKER: no isolation of {', '.join(lacking)}"}

    def close(self) -> None:
        """End every sandbox."""
        with self._lock:
            evaluators, self._evaluators = list(self._evaluators.values()), {}
        for evaluator in evaluators:
            evaluator.close()
        if self._kept is not None:
            self._kept.cache.close()

    def brief(self) -> Brief:
        """The task's self-description; its component `prompt` is the first prompt of the hole."""
        return self._brief

    def examples(self, split: str) -> Sequence[Example]:
        """One example: the whole instance set of `split`. Nothing is loaded."""
        splits = self.problem.splits
        if split not in splits:
            raise ValueError(f"task {self.problem.table.name!r} has no split {split!r}; it has: {', '.join(splits)}")
        return [Example(split, {"split": splits[split]})]

    def episode(self, example: Example, context: Context) -> HeuristicEpisode:
        """One answer to the context's `prompt`."""
        prompt = context.components.get(PROMPT, self._brief.components[PROMPT])
        bar = context.data.get(BAR)
        return HeuristicEpisode(self, prompt, str(example.data.get("split", example.id)), bar)

    def best_files(self, rollout: Rollout, header: str) -> Mapping[str, str]:
        """`heuristic.py`: the module of a valid rollout, importable on its own, under `header` as comments."""
        code = rollout.artifacts.get("code")
        if not code:
            return {}
        comments = "\n".join(f"# {line}".rstrip() for line in header.strip().splitlines())
        return {"heuristic.py": f"{comments}\n{code}" if comments else str(code)}

    def judge(self, text: str, split: str, truncated: bool = False, bar: float | None = None) -> EpisodeResult:
        """Parse a completion and evaluate what it holds; may be called from several threads.

        Args:
            text: the completion.
            split: as evaluate.py calls it.
            truncated: whether it was broken off.
            bar: where the problem has bounds, an answer is `outraced` once its return is certain to be below this.
        """
        if self.template.kind == "expression":
            answer = parse_expression(text, self._target, self._arguments)
        else:
            answer = parse_function(text, self.template.entry, truncated)
        if answer.status != "ok":
            return _result(answer.status, answer, message=answer.message)
        code = self.template.render(answer.text)
        try:
            key = code_key(code, self.template.entry.name)
        except SyntaxError as error:  # it parses alone and not within the template
            return _result("syntax", answer, message=str(error.msg))
        minimize = self._brief.direction == "minimize"
        worst = None if bar is None else Bar(-bar if minimize else bar, minimize)
        return self._judged(answer, code, key, self._memory.evaluate(code, split, key, worst))

    def _judged(self, answer: Answer, code: str, key: str, found: Evaluation) -> EpisodeResult:
        if found.status != "ok" or found.objective is None:
            return _result(found.status, answer, code, key, found.message)
        return _result("ok", answer, code, key, "", found, self._brief.direction == "minimize")

    @property
    def _hole(self) -> HoleTable:
        return self.problem.table.holes[self.template.kind]

    @property
    def _target(self) -> str:
        """The name that an expression is assigned to."""
        return self._hole.signature.partition("=")[0].strip()

    def _identity(self, split: str) -> str | None:
        """The key under which results on `split` are kept; None where they cannot be."""
        with self._lock:
            started = next(iter(self._evaluators.values()), None)
        isolation = (started or self._evaluator(split)).isolation
        if not (isolation["files"] or isolation["user"]):
            return None  # candidates are the run's own user here, and could write into the cache
        try:
            return evaluator_key(self.problem, split, self._limits_of(split), self._options, isolation)
        except NoIdentityError as error:
            assert self._kept is not None
            self._kept.cache.turn_off(f"is not used: {error}")
            return None

    def _limits_of(self, split: str) -> Limits:
        """Those of the search split, or what they are on `split`, whose instances are only now loaded."""
        if (found := self._limits.get(split)) is None:
            search, times = self._limits[self.problem.splits[TRAIN]], growth(self.problem, split, self._options)
            found = self._limits[split] = self.problem.held_out_limits(search, split, times)
        return found

    def _evaluator(self, split: str) -> Evaluator:
        limits = self._limits_of(split)
        with self._lock:
            evaluator = self._evaluators.get(split)
            if evaluator is None:
                evaluator = self._evaluators[split] = Evaluator(
                    self.problem.folder,
                    split,
                    self.template.entry.name,
                    limits=limits,
                    workers=self._workers,
                    options=self._options,
                )
            return evaluator


class HeuristicEpisode:
    """One request, one answer, one score."""

    def __init__(self, task: HeuristicTask, prompt: str, split: str, bar: float | None = None) -> None:
        self._task = task
        self._bar = bar
        self._prompt = prompt
        self._split = split
        self._completion: Completion | None = None

    def requests(self) -> Sequence[Request]:
        """The prompt as the user's message, until it is answered."""
        if self._completion is not None:
            return []
        brief = self._task.brief()
        message = {"role": "user", "content": self._prompt}
        return [Request((message,), prefill=brief.prefill, stop=brief.stop)]

    def step(self, completions: Sequence[Completion]) -> None:
        """Keep the answer."""
        (self._completion,) = completions

    def result(self) -> EpisodeResult:
        """Parse the answer and evaluate it in the sandbox, which blocks."""
        if self._completion is None:
            raise RuntimeError("result() of an episode that was not answered")
        truncated = self._completion.finish_reason == "length"
        return self._task.judge(self._completion.text, self._split, truncated, self._bar)


def _result(
    status: str,
    answer: Answer,
    code: str = "",
    key: str = "",
    message: str = "",
    found: Evaluation | None = None,
    minimize: bool = True,
) -> EpisodeResult:
    """An episode's result; all artifacts are always there, so that readers need no defaults."""
    artifacts: dict[str, Json] = {
        "answer": answer.text,
        "thought": answer.thought,
        "code": code,
        "code_key": key,
        "message": _ADDRESS.sub("0x…", " ".join(message.split())),
        "instances": [round(value, DECIMALS) for value in found.per_instance] if found else [],
    }
    if found is None or found.objective is None:
        return EpisodeResult(status, artifacts=artifacts)
    objective = found.objective
    # 0.0 - 0.0 is 0.0, where -0.0 would be another text in a record.
    return EpisodeResult(status, 0.0 - objective if minimize else objective, {"objective": objective}, artifacts)
