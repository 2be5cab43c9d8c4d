"""What the view knows of a run, and its words: no terminal in here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from coevo import BatchReport, GenerationReport, Rollout, RunInfo
from coevo.numerics.objectives import written
from coevo.records import OUTRACED
from coevo.runs.yardstick import Judge

BETTER_IS_LESS = "minimize"


@dataclass(slots=True)
class Tally:
    """Rollouts of the batch that is under way."""

    done: int = 0
    valid: int = 0
    tokens: int = 0
    batch: int = 0
    operator: str = ""
    objectives: list[float] = field(default_factory=list[float])

    def add(self, rollouts: Sequence[Rollout]) -> None:
        """Count a chunk."""
        for rollout in rollouts:
            self.done += 1
            self.batch, self.operator = rollout.provenance.batch, rollout.provenance.operator
            self.tokens += rollout.prompt_tokens + rollout.completion_tokens
            if rollout.return_ is not None:
                self.valid += 1
                self.objectives.append(rollout.metrics.get("objective", rollout.return_))


@dataclass(frozen=True, slots=True)
class Probe:
    """What the centre answered to the fixed question; shares of all answers."""

    generation: int
    answers: int
    valid: float
    better: float | None
    score: float | None
    seconds: float

    @classmethod
    def of(cls, report: BatchReport, info: RunInfo) -> Probe:
        """From a probe's report."""
        judge = Judge(info.direction, None if info.baseline is None else info.baseline[1], info.failure)
        answers = sum(report.statuses.values())
        credits = judge.credits(report.objectives, answers)
        return cls(
            report.generation,
            answers,
            report.valid_rate,
            judge.better(report.objectives, answers),
            fmean(credits) if credits else None,
            report.seconds,
        )


@dataclass(slots=True)
class State:
    """A run so far, from the observer hooks in whatever order they come.

    `clock` gives seconds; a test brings its own.
    """

    info: RunInfo
    clock: Callable[[], float] = time.monotonic
    started: float = 0.0
    batch_started: float = 0.0
    generation: int = 0
    tally: Tally = field(default_factory=Tally)
    adapted: BatchReport | None = None
    first_probe: Probe | None = None
    last_probe: Probe | None = None
    best: float | None = None
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    batches: int = 0
    done: int = 0
    ended: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        self.started = self.batch_started = self.clock()
        self.generation = self.done = self.info.first_generation

    def rollouts(self, generation: int, rollouts: Sequence[Rollout]) -> None:
        """A chunk is on disk."""
        if rollouts and rollouts[0].provenance.purpose == "probe":
            return
        self.generation = generation
        self.tally.add(rollouts)

    def batch(self, report: BatchReport) -> None:
        """A batch is committed; the next begins."""
        self.generation = report.generation
        if report.adapt and report.members:
            self.adapted = report
        self.batches += 1
        self.sizes[report.batch] = sum(report.statuses.values())
        if report.best is not None:
            self.best = report.best.objective
        self.tally = Tally()
        self.batch_started = self.clock()

    def probe(self, report: BatchReport) -> str:
        """The centre was probed; returns the line that says so."""
        self.last_probe = Probe.of(report, self.info)
        self.first_probe = self.first_probe or self.last_probe
        self.batch_started = self.clock()
        return probe_line(self.last_probe, self.first_probe)

    def finished(self, report: GenerationReport) -> None:
        """A generation is over; one that a resumed run only had to close says nothing of the pace."""
        if self.batches:
            self.ended.append(self.clock())
        self.batches = 0
        self.done = report.generation + 1
        self.generation = min(report.generation + 1, self.info.generations - 1)

    def best_now(self) -> float | None:
        """The best objective, of the batch under way included."""
        values = [*([] if self.best is None else [self.best]), *self.tally.objectives]
        if not values:
            return None
        return min(values) if self.info.direction == BETTER_IS_LESS else max(values)

    def expected(self) -> int | None:
        """Rollouts of the batch under way, where the same batch of an earlier generation tells."""
        return self.sizes.get(self.tally.batch)

    def elapsed(self) -> float:
        """Seconds since this process took the run up."""
        return self.clock() - self.started

    def remaining(self) -> float | None:
        """Seconds that the other generations will take at the pace so far; None in the first."""
        if not self.ended:
            return None
        pace = (self.ended[-1] - self.started) / len(self.ended)
        return max(0.0, pace * (self.info.generations - self.done) - (self.clock() - self.ended[-1]))


def gap(objective: float, info: RunInfo) -> str:
    """How far an objective is from the reference, in words; empty without one."""
    if info.reference is None:
        return ""
    name, value = info.reference
    worse = objective - value if info.direction == BETTER_IS_LESS else value - objective
    return f"gap {100.0 * worse / abs(value):.2f} % to {name}" if value else f"{name} is 0"


def against_baseline(objective: float, info: RunInfo) -> str:
    """Whether an objective beats the baseline, in words; empty without one."""
    if info.baseline is None:
        return ""
    name, value = info.baseline
    beats = objective < value if info.direction == BETTER_IS_LESS else objective > value
    return f"{'beats' if beats else 'does not beat'} {name} ({written(value)})"


def signs_of_life(metrics: Mapping[str, float], members: int) -> list[str]:
    """What says whether ES is doing anything: sigma, moved, informative members, variance ratio."""
    words: list[str] = []
    if "sigma" in metrics:
        words.append(f"sigma {metrics['sigma']:.3g}")
    if "moved" in metrics:
        words.append(f"moved {100.0 * metrics['moved']:.0f} %")
    if "informative" in metrics:
        words.append(f"informative {metrics['informative']:.0f}/{members}")
    if "variance_ratio" in metrics:
        words.append(f"between/within variance {metrics['variance_ratio']:.2f}")
    if "cosine_run" in metrics:
        words.append(f"cosine {metrics['cosine']:.2f} (of all updates {metrics['cosine_run']:.2f})")
    return words


def probe_words(probe: Probe) -> str:
    """What the centre answers to the fixed question."""
    words = [f"{100.0 * probe.valid:.0f} % valid"]
    if probe.better is not None:
        words.append(f"{100.0 * probe.better:.0f} % better than the baseline")
    if probe.score is not None:
        words.append(f"score {probe.score:.3f}")
    return ", ".join(words)


def beside_first(probe: Probe, first: Probe) -> str:
    """What the centre answers, with what it answered at first."""
    before = "" if probe is first else f" (at first {probe_words(first)})"
    return f"{probe_words(probe)}{before}"


def probe_line(probe: Probe, first: Probe) -> str:
    """A probe in one line, with the run's first one beside it."""
    done = f"after {probe.generation} {'generation' if probe.generation == 1 else 'generations'}"
    return f"probe of the centre {done}: {probe.answers} answers, {beside_first(probe, first)}, {clock(probe.seconds)}"


def batch_line(report: BatchReport, info: RunInfo) -> str:
    """A committed batch in one line."""
    total = sum(report.statuses.values())
    tokens = report.prompt_tokens + report.completion_tokens
    words = [f"{total} answers", f"{100.0 * report.valid_rate:.0f} % valid"]
    if report.best is not None:
        best = report.best.objective
        words += [f"best {written(best)}", *filter(None, (gap(best, info), against_baseline(best, info)))]
    if report.objectives:
        stopped = report.statuses.get(OUTRACED, 0)
        left_out = f" (without {stopped} outraced)" if stopped else ""
        words.append(f"mean {written(fmean(report.objectives))}{left_out}")
    words += signs_of_life(report.metrics, report.members)
    if report.seconds > 0.0:
        words.append(f"{tokens / report.seconds:.0f} tokens/s")
    words.append(clock(report.seconds))
    operator = f" {report.operator}" if report.operator else ""
    line = f"generation {report.generation + 1}/{info.generations}{operator}: {', '.join(words)}"
    return line + (f"; weights did not move: {report.zero_update}" if report.zero_update else "")


def start_line(info: RunInfo) -> str:
    """What starts, where, on what."""
    config = info.config
    machine = ", ".join(f"{name} {value}" for name, value in info.machine.items())
    what = f"task {config.get('task')}, param {config.get('param')}, context {config.get('context')}"
    again = f", going on at generation {info.first_generation + 1}" if info.first_generation else ""
    return f"run {info.name} in {info.path}: {what}{again}" + (f"; {machine}" if machine else "")


def clock(seconds: float) -> str:
    """`0:07`, `12:05`, `3:12:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
