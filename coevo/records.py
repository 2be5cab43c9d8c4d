"""What flows through coevo: frozen records, each with one meaning (design section 2).

Records carry data and no behaviour beyond identity and JSON. Returns are *higher is better* everywhere;
an `objective` is the same number in the problem's own direction. A failure is a status, never a number.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

Json: TypeAlias = Any
"""A value that `json.dumps(..., allow_nan=False)` accepts."""

Message: TypeAlias = Mapping[str, str]
"""One chat message: `role` and `content`."""

Pairing: TypeAlias = Literal["cross", "zip"]

Status: TypeAlias = Literal[
    "ok", "no_answer", "syntax", "no_entry", "import", "exception", "timeout", "out_of_memory", "invalid_solution",
    "non_finite", "context_overflow", "engine_error", "judge_error", "outraced",
]  # fmt: skip
STATUSES: tuple[str, ...] = get_args(Status)
OUTRACED = "outraced"
VALID: frozenset[str] = frozenset({"ok", OUTRACED})
"""Answers that work. One that is `outraced` was stopped when it was sure that its return is below the bar of its
context (`BAR`), so it has none; it is no failure."""
EXCLUDED: frozenset[str] = frozenset({"engine_error", "judge_error"})
"""Failures that are not the model's: retried, then left out; never a reward."""
BAR = "bar"
"""Key of `Context.data`: an answer whose return is below this number is of no use to who asks. A task may stop
evaluating such an answer and call it `outraced`, or may ignore it. Never in a batch that adapts."""


def valid_share(statuses: Mapping[str, int]) -> float:
    """Share of answers that are `VALID`, given a count per status; 0 of none."""
    total = sum(statuses.values())
    return sum(statuses.get(status, 0) for status in VALID) / total if total else 0.0


def _empty() -> dict[str, Json]:
    return {}


@dataclass(frozen=True, slots=True)
class Example:
    """One instance of a task that an episode answers."""

    id: str
    data: Mapping[str, Json] = field(default_factory=_empty)


@dataclass(frozen=True, slots=True)
class Context:
    """All text that steers the model in an episode.

    Attributes:
        components: named texts; `Brief.components` of the task says which names it reads.
        operator: what produced this context (`"m1"`), empty for a first one.
        parents: ids or labels of what it was made from, for lineage and credit.
        data: JSON that the context updater wants back in the buffer (a parent's objective). Of its keys a task reads
            only `BAR`.
    """

    components: Mapping[str, str] = field(default_factory=dict[str, str])
    operator: str = ""
    parents: tuple[str, ...] = ()
    data: Mapping[str, Json] = field(default_factory=_empty)

    @property
    def id(self) -> str:
        """16 hex digits over the components: equal texts are the same context."""
        text = json.dumps(dict(self.components), sort_keys=True, ensure_ascii=False)
        return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Batch:
    """What a context updater wants rolled out before it learns again.

    Attributes:
        contexts: at least one.
        pairing: `cross`: every member sees every context and example; `zip`: contexts are dealt to the
            members in blocks of the parameter updater's `answers`.
        split: `train` or `validation`. The test split is in no batch, whatever its purpose, and has no other name here.
        examples: ids within the split, each once, None for all of it.
        samples: answers per (context, example) in `cross` and in batches at the centre.
        adapt: whether the parameter updater perturbs and learns from this batch.
        operator: a label for the reader (EoH's `m1`).
        purpose: `search`, `gate` or `probe`; the last two never adapt.
    """

    contexts: tuple[Context, ...]
    pairing: Pairing = "cross"
    split: str = "train"
    examples: tuple[str, ...] | None = None
    samples: int = 1
    adapt: bool = True
    operator: str = ""
    purpose: Literal["search", "gate", "probe"] = "search"

    def __post_init__(self) -> None:
        if not self.contexts:
            raise ValueError("a batch needs at least one context")
        given: Any = self  # What is of another kind than it is to be is told where it comes from (`host.contracts`).
        if isinstance(given.samples, int) and given.samples < 1:
            raise ValueError(f"samples must be at least 1, got {self.samples}")
        if self.adapt and self.purpose != "search":
            raise ValueError(f"a {self.purpose} batch must not adapt")
        listed: Any = self.contexts if isinstance(given.contexts, list | tuple) else ()
        if self.adapt and any(isinstance(d := getattr(c, "data", 0), Mapping) and BAR in d for c in listed):
            raise ValueError(f"a batch that adapts must not set a bar ({BAR!r} in Context.data): weights learn of all")


@dataclass(frozen=True, slots=True)
class Perturbation:
    """A member of the population: the noise seed and its signed size."""

    seed: int
    sigma: float
    family: str = "normal-v1"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. `temperature` 0 is greedy; `top_k` 0 and `min_p` 0 are off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    max_new_tokens: int = 256


@dataclass(frozen=True, slots=True)
class Request:
    """One completion asked of a policy.

    Attributes:
        messages: the chat so far.
        prefill: text the assistant's turn begins with; the completion continues it.
        stop: generation ends before any of these strings.
        sampling: None takes the run's; a task sets it only where it must differ.
        seed: the request's own random stream; filled in by the loop.
        chat_options: extra arguments of the chat template.
        logprobs: whether log-probabilities of the generated tokens are wanted.
    """

    messages: tuple[Message, ...]
    prefill: str = ""
    stop: tuple[str, ...] = ()
    sampling: Sampling | None = None
    seed: int = 0
    chat_options: Mapping[str, Json] = field(default_factory=_empty)
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """What a policy answered. `text` excludes the prefill and the stop string.

    It includes thinking with its marks, the opening one even where the chat template put it into the prompt.

    `finish_reason`: `stop` (end of turn or a stop string), `length`, `context_overflow` (the prompt and
    `max_new_tokens` do not fit; nothing was generated). `tokens`: (prompt, generated), of a server that tells no ids.
    `note`: what a reader should know where nothing valid comes of it, in a line; no part of the answer.
    """

    text: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[float, ...] | None = None
    tokens: tuple[int, int] | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One act of the model and what came back. Prompt and completion are kept whole.

    `generated_mask` is None when every completion token was generated by the model; `tokens` as in `Completion`.
    """

    messages: tuple[Message, ...]
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    finish_reason: str
    text: str
    prefill: str = ""
    generated_mask: tuple[bool, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    observation: str = ""
    tokens: tuple[int, int] | None = None

    @property
    def spent(self) -> tuple[int, int]:
        """Tokens of the prompt and tokens generated; none where the prompt did not fit and nothing was computed."""
        if self.finish_reason == "context_overflow":
            return (0, 0)
        return self.tokens or (len(self.prompt_ids), len(self.completion_ids))


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The steps of an episode in order."""

    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class EpisodeResult:
    """What a task says of a finished episode. `return_` is None unless `status` is `ok`."""

    status: str
    return_: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    artifacts: Mapping[str, Json] = field(default_factory=_empty)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"unknown status {self.status!r}; expected one of {', '.join(STATUSES)}")
        if (self.return_ is None) == (self.status == "ok"):
            raise ValueError(f"status {self.status!r} with return {self.return_!r}: only 'ok' has a return")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a rollout comes from. `member` is None at the centre; `seed` is then 0 and `sigma` 0."""

    generation: int
    batch: int
    chunk: int
    member: int | None
    seed: int
    sigma: float
    context: int
    context_id: str
    example: str
    sample: int
    sampling_seed: int
    policy_id: str
    operator: str = ""
    purpose: str = "search"


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt at one example, as a record.

    `credit` is what the parameter updater learns from; None until `credit` ran or for an excluded rollout.
    `seconds` is wall time and the only field that may differ between two equal runs.
    """

    provenance: Provenance
    status: str
    return_: float | None
    trajectory: Trajectory
    credit: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    artifacts: Mapping[str, Json] = field(default_factory=_empty)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    @property
    def id(self) -> str:
        """Unique in the run, such as `g0-b2-m5-c41-train-s0`: generation, batch, member, context, example, sample.

        The member is `centre` without one, and `probe` in a probe, which comes before the batch that it is named by.
        """
        p = self.provenance
        centre = "probe" if p.purpose == "probe" else "centre"
        member = centre if p.member is None else f"m{p.member}"
        return f"g{p.generation}-b{p.batch}-{member}-c{p.context}-{p.example}-s{p.sample}"

    @property
    def calls(self) -> int:
        """Model calls spent."""
        return len(self.trajectory.steps)


@dataclass(frozen=True, slots=True)
class Buffer:
    """The rollouts of one batch in plan order: all that both updaters may learn from.

    `moved` is the share of sampled weights whose served value a member changed, None where unknown.
    """

    batch: Batch
    members: tuple[Perturbation, ...]
    rollouts: tuple[Rollout, ...]
    moved: float | None = None


@dataclass(frozen=True, slots=True)
class SeedsUpdate:
    """An update as noise seeds and coefficients: the only kind that makes a kilobyte journal.

    `terms` are (seed, coefficient); empty means a zero update, whose `reason` says why.
    """

    terms: tuple[tuple[int, float], ...]
    family: str = "normal-v1"
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class GradientUpdate:
    """Advantages for a gradient engine: `advantages[i]` belongs to rollout `rollouts[i]`."""

    rollouts: tuple[str, ...]
    advantages: tuple[float, ...]
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class DenseUpdate:
    """A delta file named by its sha256."""

    path: str
    digest: str
    reason: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])


Update: TypeAlias = SeedsUpdate | GradientUpdate | DenseUpdate
