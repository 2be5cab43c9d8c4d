"""From a batch to its plan: which rollouts, of which member, in which chunks, on which seeds. Pure.

A *chunk* holds requests of one member; its membership and order are a function of the plan and the configured
size, so a repeated chunk is the same computation on the same seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from coevo.errors import PluginError, did_you_mean
from coevo.interfaces import Task
from coevo.numerics.seeds import sampling_seed
from coevo.records import Batch, Example, Perturbation

SPLITS = ("train", "validation")
"""What batches are made of. A list of what may be, because a task may know its test split by other names too."""

MOST_ANSWERS = 1_000_000
"""Rollouts of one batch: a plan of more would not fit into memory."""

FEW = 20
"""Ids that a message may list."""


def load_examples(task: Task, split: str) -> Sequence[Example]:
    """All examples of a split that a batch may ask for.

    Raises:
        PluginError: it is the test split or no split, or it is empty.
    """
    if split not in SPLITS:
        raise PluginError(
            f"a batch asks for split {split!r}; expected 'train' or 'validation': the test split is in no batch, under "
            "none of its names"
        )
    try:
        examples = task.examples(split)
    except ValueError as error:
        raise PluginError(f"a batch asks for split {split!r}: {' '.join(str(error).split())}") from error
    if not examples:
        raise PluginError(f"a batch asks for split {split!r}, in which the task has no examples")
    return examples


def choose(examples: Sequence[Example], batch: Batch) -> Sequence[Example]:
    """Those of a split's examples that a batch asks for, in the split's order.

    Raises:
        PluginError: it asks for none, for one that does not exist, or for one twice.
    """
    if batch.examples is None:
        return examples
    if not batch.examples:
        raise PluginError(f"a batch asks for no example of split {batch.split!r}; None asks for all")
    id, count = Counter(batch.examples).most_common(1)[0]  # noqa: A001 - what records call it
    if count > 1:
        raise PluginError(f"a batch asks {count} times for example {id!r}; Batch.samples asks for more answers")
    asked, known = set(batch.examples), [example.id for example in examples]
    for missing in sorted(asked - set(known)):
        hint = did_you_mean(missing, known) if len(known) <= FEW else f"; it has {len(known):,}, such as {known[0]!r}"
        raise PluginError(f"a batch asks for example {missing!r}, which split {batch.split!r} has not{hint}")
    return [example for example in examples if example.id in asked]


@dataclass(frozen=True, slots=True)
class Cell:
    """One planned rollout: indices into the batch's contexts and its examples."""

    context: int
    example: int
    sample: int
    seed: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Planned rollouts of one member (None: the centre)."""

    index: int
    member: int | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """What a plan depends on besides the batch. `common` None takes the pairing's default."""

    root_seed: int
    generation: int
    batch: int
    answers: int = 1
    common: bool | None = None
    chunk: int = 32


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch with everything that running it needs."""

    batch: Batch
    members: tuple[Perturbation, ...]
    examples: Sequence[Example]
    settings: PlanSettings
    chunks: Plan

    @property
    def size(self) -> int:
        """Planned rollouts."""
        return self.chunks.size


class Plan(Sequence[Chunk]):
    """All chunks of a batch in order, members one after the other.

    They are made when the first is looked at: there may be a million rollouts, and no budget for them.

    Attributes:
        size: rollouts.
    """

    def __init__(self, batch: Batch, examples: Sequence[Example], members: int, settings: PlanSettings) -> None:
        """The plan of a batch.

        Args:
            batch: what to roll out.
            examples: the batch's examples in order.
            members: population of this batch; 0 is the centre alone.
            settings: seeds and sizes.
        """
        self._of = batch, examples, members, settings
        if batch.pairing == "zip" and members:
            contexts = _slots(len(batch.contexts), members, settings.answers)
        else:
            contexts = len(batch.contexts) * batch.samples * max(members, 1)
        self.size = contexts * len(examples)

    @cached_property
    def _chunks(self) -> list[Chunk]:
        return _expanded(*self._of)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        return self._chunks[index]

    def __len__(self) -> int:
        return len(self._chunks)


def _expanded(batch: Batch, examples: Sequence[Example], members: int, settings: PlanSettings) -> list[Chunk]:
    zipped = batch.pairing == "zip" and members > 0
    deal = _deal_zip if zipped else _deal_cross
    hands = deal(batch, len(examples), max(members, 1), settings.answers)
    common = batch.pairing == "cross" if settings.common is None else settings.common
    at = (settings.root_seed, settings.generation, settings.batch)
    chunks: list[Chunk] = []
    for index, hand in enumerate(hands):
        member = index if members else None
        seeded = None if common else member

        def seed(place: int, c: int, e: int, s: int, seeded: int | None = seeded) -> int:
            if zipped and common:
                # No two members are dealt the same (context, sample): what they have in common is the place in
                # their hands.
                c, s = 0, place // len(examples)
            return sampling_seed(*at, c, examples[e].id, s, seeded)

        cells = [Cell(c, e, s, seed(place, c, e, s)) for place, (c, e, s) in enumerate(hand)]
        for start in range(0, len(cells), settings.chunk):
            part = tuple(cells[start : start + settings.chunk])
            chunks.append(Chunk(len(chunks), member, part))
    return chunks


def _deal_cross(batch: Batch, examples: int, members: int, answers: int) -> list[list[tuple[int, int, int]]]:
    """Every member sees every context and example, `batch.samples` times."""
    hand = [(c, e, s) for c in range(len(batch.contexts)) for e in range(examples) for s in range(batch.samples)]
    return [list(hand) for _ in range(members)]


def _deal_zip(batch: Batch, examples: int, members: int, answers: int) -> list[list[tuple[int, int, int]]]:
    """Blocks of `answers` contexts to the members in turn; contexts repeat until every member has a block."""
    count = len(batch.contexts)
    hands: list[list[tuple[int, int, int]]] = [[] for _ in range(members)]
    for slot in range(_slots(count, members, answers)):
        context, repeat = slot % count, slot // count
        hands[(slot // answers) % members] += [(context, e, repeat) for e in range(examples)]
    return hands


def _slots(contexts: int, members: int, answers: int) -> int:
    """How many contexts are dealt, those that are repeated among them."""
    return max(contexts, members * answers)
