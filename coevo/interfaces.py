"""The Protocols that plugins implement (design section 5): hooks register and observe, Protocols compute.

Nothing here is inherited from: an object with the right methods is a task, an engine or an updater.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from coevo.records import (
    Batch,
    Buffer,
    Completion,
    Context,
    EpisodeResult,
    Example,
    Json,
    Perturbation,
    Request,
    Update,
)
from coevo.reports import Ledger


@dataclass(frozen=True, slots=True)
class Reference:
    """A known objective value: `value` on `split`, found by `method`; `proved` if no better can exist.

    Exactly one reference of the search split may be the `baseline`: what a search should beat.
    """

    name: str
    split: str
    value: float
    method: str = ""
    proved: bool = False
    baseline: bool = False


@dataclass(frozen=True, slots=True)
class Brief:
    """What a task tells updaters about itself; prompts are rendered from it, nothing else is needed.

    Attributes:
        description: the problem in a few lines.
        hole: `expression`, `function`, or `none` for a task that is no program search.
        signature: the function or assignment that the model completes.
        arguments: (name, meaning) of what the hole may use.
        returns: what the hole gives back, in words.
        examples: answers of the right form that may be shown to the model.
        prefill: how the assistant's turn begins.
        stop: strings that end an answer.
        direction: of the objective.
        failure: what a failure of the model is worth to the updaters: `below` every valid answer, or a
            number.
        components: the context components that the task reads, with their default texts.
        max_new_tokens: how long an answer may be unless the run says otherwise.
        max_calls: model calls that one episode may make. One that asks for more fails, and hard budgets are planned
            with this number.
    """

    name: str
    title: str
    description: str
    hole: Literal["expression", "function", "none"] = "none"
    signature: str = ""
    arguments: tuple[tuple[str, str], ...] = ()
    returns: str = ""
    examples: tuple[str, ...] = ()
    prefill: str = ""
    stop: tuple[str, ...] = ()
    direction: Literal["minimize", "maximize"] = "maximize"
    references: tuple[Reference, ...] = ()
    failure: Literal["below"] | float = "below"
    components: Mapping[str, str] = field(default_factory=dict[str, str])
    max_new_tokens: int = 256
    max_calls: int = 1

    def baseline(self, split: str = "train") -> Reference | None:
        """The reference of `split` that a search should beat, if one is marked."""
        return next((r for r in self.references if r.split == split and r.baseline), None)

    def baseline_return(self, split: str = "train") -> float | None:
        """The baseline as a return: higher is better."""
        baseline = self.baseline(split)
        if baseline is None:
            return None
        return -baseline.value if self.direction == "minimize" else baseline.value

    def best_known(self, split: str = "train") -> Reference | None:
        """The best reference of `split`: gaps are measured to it."""
        values = [r for r in self.references if r.split == split]
        if not values:
            return None
        sign = 1.0 if self.direction == "minimize" else -1.0
        return min(values, key=lambda r: sign * r.value)


class Episode(Protocol):
    """One attempt. The loop asks for requests, answers them, and repeats until there are none."""

    def requests(self) -> Sequence[Request]:
        """What to complete next; empty when the episode is over."""
        ...

    def step(self, completions: Sequence[Completion]) -> None:
        """Answers to the last `requests()`, in order. With a rolling engine it is called in a worker thread."""
        ...

    def result(self) -> EpisodeResult:
        """Score the episode. Called once, in a worker thread: it may block on a sandbox or a judge."""
        ...


@runtime_checkable
class Task(Protocol):
    """A family of examples with an evaluator. The task owns the answer parser.

    Optional, as Protocols in `coevo.optional`: `Starts`, `Closes`, `Describes`, `WritesBest`, `DrivesItself` (an agent
    with a loop of its own) and `Instructs`.
    """

    def brief(self) -> Brief:
        """The task's self-description."""
        ...

    def examples(self, split: str) -> Sequence[Example]:
        """Examples of a split; ValueError names the splits that exist."""
        ...

    def episode(self, example: Example, context: Context) -> Episode:
        """A fresh episode."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do.

    Attributes:
        adapts: its weights can be perturbed and updated.
        gradients, logprobs: what it can give besides text.
        slots: policies that it can serve at once.
        deterministic: whether a chunk that is asked again gets the same answers.
        rolling: requests of a policy are answered as they come, in whatever company: the chunks of a member are asked
            together, each episode by itself, and none waits for the slowest. Not deterministic.
    """

    adapts: bool
    gradients: bool = False
    logprobs: bool = False
    slots: int = 1
    deterministic: bool = True
    rolling: bool = False


@runtime_checkable
class Policy(Protocol):
    """Parameters being served. `id` is the hash of (master digest, perturbation, selection)."""

    id: str

    async def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete all, in order. One request that cannot be served is its own completion's reason."""
        ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A policy as an OpenAI-compatible API: all that an agent of any framework has to know.

    Attributes:
        base_url: such as `http://127.0.0.1:41234/v1`.
        key: the bearer token that it asks for, empty where it asks for none.
        model: the one that it serves.
    """

    base_url: str
    key: str = field(repr=False)
    model: str


class ServedPolicy(Policy, Protocol):
    """A policy that can be asked over HTTP as well: what a task that drives itself is given."""

    def endpoint(self) -> AbstractAsyncContextManager[Endpoint]:
        """Serve it on loopback until the context, or the lease, ends (`coevo.endpoint.serve`)."""
        ...


@runtime_checkable
class Engine(Protocol):
    """Serves generations and owns the weights. Served weights are derived from the master, never undone.

    The constructor loads the model and runs the canary, so that an engine that exists can be trusted.

    Optional, as Protocols in `coevo.optional`: `Moves`, `Reaches`, `CountsTokens`, `Spends`, `Records`, `KeepsAnchors`,
    `ServedDigest`, `Describes`, `Closes`; on the factory `ChecksModel`, `CountsBeforehand`,
    `TellsFootprint` and `SaysWhetherAdapts`.
    """

    capabilities: Capabilities

    def lease(self, perturbation: Perturbation | None) -> AbstractAsyncContextManager[Policy]:
        """Serve a member, or the centre for None, until the context ends."""
        ...

    def apply(self, update: Update) -> None:
        """Move the master. Raises ValueError for an update kind it cannot apply."""
        ...

    def digest(self) -> str:
        """The `weights_digest` of the master."""
        ...

    def export(self, path: Path, dtype: str | None = None) -> None:
        """Write the centre as a folder that transformers loads."""
        ...


@runtime_checkable
class ParameterUpdater(Protocol):
    """Ask/tell optimizer of the weights: plain numbers and seeds, no tensors.

    Attributes:
        population: members per adapting batch.
        answers: rollouts per member in `zip` batches.
        common_random_numbers: None takes the pairing's default.
        needs: what the engine must be able to do: `adapts`, `gradients`, or empty.
    """

    population: int
    answers: int
    common_random_numbers: bool | None
    needs: str

    def ask(self, batch: Batch) -> Sequence[Perturbation]:
        """The members for a batch; empty asks for the centre."""
        ...

    def tell(self, buffer: Buffer) -> Update | None:
        """Learn from a batch. None: nothing to apply and nothing to journal."""
        ...

    def state_dict(self) -> Json:
        """All state as JSON."""
        ...

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`."""
        ...


@runtime_checkable
class ContextUpdater(Protocol):
    """Ask/tell optimizer of the context.

    Optional, as Protocols in `coevo.optional`: `Credits` (what the parameter updater learns from), `Wraps`,
    `Learned`, `AdaptsIn` and `SizedBy`.
    """

    def ask(self) -> Batch | None:
        """The next batch of this generation; None ends the generation."""
        ...

    def tell(self, buffer: Buffer) -> None:
        """Learn from the same buffer as the parameter updater."""
        ...

    def state_dict(self) -> Json:
        """All state as JSON: a run resumed from it asks the same batches."""
        ...

    def load_state_dict(self, state: Json) -> None:
        """The inverse of `state_dict`."""
        ...


class Services(Protocol):
    """What an updater may ask of the run; a factory that has a parameter `services` is given one.

    An updater reads it; it can set nothing, and the ledger that it gets is a copy.

    Attributes:
        root_seed: of the run.
        generation, batch: where the loop is (before `ask`: of the batch about to be asked).
        ledger: what committed batches and probes have spent; what a kill cut off is held against the budgets and is not
            in here, so that a resumed run is told the same.
        batch_answers: rollouts that an adapting `zip` batch needs to fill every member
            (population × answers), 0 without a parameter updater.
        member_answers: how many of them each member gives, 0 without a parameter updater. A `zip` batch of that many
            contexts asks all members the same.
        folder: where an updater may write files of its own.
    """

    root_seed: int
    generation: int
    batch: int
    ledger: Ledger
    batch_answers: int
    member_answers: int
    folder: Path

    @property
    def calls_left(self) -> int | None:
        """Model calls that batches may still make, a probe at the end apart; None where the run has no such limit.

        It follows from the ledger, so a resumed or replayed run is told the same; what a kill cut off is not taken off.
        A batch that could need more than there is, is not started and ends the run.
        """
        ...

    def seed(self, *coordinates: str | int) -> int:
        """A seed for the updater's own randomness, a function of the root seed and the coordinates.

        Generation and batch are part of it already.
        """
        ...

    def progress(self) -> float:
        """Share of the planned adapting batches (or of the budget, if larger) used so far, in [0, 1)."""
        ...
