"""What a run tells of itself: its best answers, what a batch and a generation came to, what it has spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from coevo.records import Json, valid_share


@dataclass(frozen=True, slots=True)
class Best:
    """The best valid rollout of a run so far, kept apart from any population."""

    rollout: str
    generation: int
    batch: int
    return_: float
    objective: float


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One committed batch, as the reader sees it.

    Attributes:
        statuses: count per status.
        objectives: objective of every rollout with status `ok`, in plan order.
        metrics: the parameter updater's (sigma, moved, informative, variance_ratio, ...) and the engine's (cosine).
        zero_update: why the update was zero, empty if it was not or the batch did not adapt.
        calls, tokens: of this batch; tokens = prompt + completion.
        seconds: wall time of this batch.
    """

    generation: int
    batch: int
    operator: str
    purpose: str
    adapt: bool
    members: int
    statuses: Mapping[str, int]
    objectives: tuple[float, ...]
    best: Best | None
    metrics: Mapping[str, float]
    zero_update: str
    digest: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float

    @property
    def valid_rate(self) -> float:
        """Share of rollouts that are `VALID`, 0 for an empty batch."""
        return valid_share(self.statuses)


@dataclass(frozen=True, slots=True)
class GenerationReport:
    """All batches of one generation, after the last of them is on disk."""

    generation: int
    batches: tuple[BatchReport, ...]
    best: Best | None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What an observer is told when a run starts and ends.

    Attributes:
        path: the run's folder.
        config: the resolved configuration as JSON.
        first_generation: 0, or where a resumed run goes on.
        generations: how many are planned.
        direction: `minimize` or `maximize`, of the objective.
        reference: (name, value) to which gaps are measured, or None.
        baseline: (name, value) that a search should beat, or None.
        failure: what a failure of the model is worth as a return, None where it is only below all others.
        machine: device, dtype, threads, where the master is and how large, as text by name.
    """

    name: str
    path: str
    config: Mapping[str, Json]
    first_generation: int
    generations: int
    direction: str = "minimize"
    reference: tuple[str, float] | None = None
    baseline: tuple[str, float] | None = None
    failure: float | None = None
    machine: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class Ledger:
    """What a run, or a part of it, has spent. `tokens` = prompt + completion."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens together."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Ledger) -> Ledger:
        """Both together."""
        return Ledger(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
        )

    def __sub__(self, other: Ledger) -> Ledger:
        """What is left without a part."""
        return Ledger(
            self.calls - other.calls,
            self.prompt_tokens - other.prompt_tokens,
            self.completion_tokens - other.completion_tokens,
        )
