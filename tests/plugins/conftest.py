"""Fakes for updaters: a run's services, a task's brief, and rollouts dealt as the loop deals them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coevo import Batch, Brief, Buffer, Example, Perturbation, Reference, Rollout, Trajectory
from coevo.loop.plan import Plan, PlanSettings
from coevo.numerics.seeds import derive
from coevo.records import Provenance
from coevo.reports import Ledger


@dataclass
class FakeServices:
    """`coevo.interfaces.Services` without a run; `used` is what `progress()` answers."""

    root_seed: int = 7
    generation: int = 0
    batch: int = 0
    batch_answers: int = 0
    member_answers: int = 0
    calls_left: int | None = None
    used: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    folder: Path = Path("unused")

    def seed(self, *coordinates: str | int) -> int:
        return derive(self.root_seed, "updater", self.generation, self.batch, *coordinates)

    def progress(self) -> float:
        return self.used


@dataclass(frozen=True)
class Answer:
    """What a fake model answers. `objective` None is a failure with `status`."""

    objective: float | None
    code_key: str = ""
    text: str = "d_current"
    status: str = "ok"


def deal(batch: Batch, members: int, answers: int) -> list[tuple[int | None, int, int]]:
    """(member, context, sample) of every rollout in plan order, for a task with one example."""
    chunks = Plan(batch, [Example("0")], members, PlanSettings(7, 0, 0, answers))
    return [(chunk.member, cell.context, cell.sample) for chunk in chunks for cell in chunk.cells]


def play(
    batch: Batch,
    answer: Callable[[int, int | None], Answer],
    *,
    members: Sequence[Perturbation] = (),
    answers: int = 1,
    services: FakeServices | None = None,
    direction: str = "minimize",
    moved: float | None = None,
) -> Buffer:
    """The buffer of a batch whose rollout `index` of `member` is `answer(index, member)`."""
    at = services or FakeServices()
    rollouts: list[Rollout] = []
    for index, (member, context, sample) in enumerate(deal(batch, len(members), answers)):
        said = answer(index, member)
        status = said.status if said.objective is not None else (said.status.replace("ok", "syntax"))
        sign = -1.0 if direction == "minimize" else 1.0
        own = members[member] if member is not None else None
        provenance = Provenance(
            generation=at.generation, batch=at.batch, chunk=0, member=member, seed=own.seed if own else 0,
            sigma=own.sigma if own else 0.0, context=context, context_id=batch.contexts[context].id, example="0",
            sample=sample, sampling_seed=index, policy_id="p", operator=batch.operator,
        )  # fmt: skip
        rollouts.append(
            Rollout(
                provenance,
                status,
                None if said.objective is None else sign * said.objective,
                Trajectory(),
                metrics={} if said.objective is None else {"objective": said.objective},
                artifacts={"answer": said.text, "thought": "", "code": "", "code_key": said.code_key, "message": ""},
            )
        )
    return Buffer(batch, tuple(members), tuple(rollouts), moved)


def make_brief(**changes: object) -> Brief:
    fields: dict[str, object] = {
        "name": "tsp_construct",
        "title": "TSP",
        "description": "Visit all cities.\nShorter tours are better.",
        "hole": "expression",
        "signature": "score = ...",
        "arguments": (("d_current", "distance to here"), ("d_home", "distance to the start")),
        "examples": ("d_current",),
        "prefill": "score =",
        "stop": ("\n",),
        "direction": "minimize",
        "references": (Reference("nearest neighbour", "train", 7.0, baseline=True),),
        "components": {"prompt": "Visit all cities. Write one line."},
    }
    return Brief(**(fields | changes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Kit:
    """What the tests of all plugins build with (a fixture, since test folders import nothing)."""

    FakeServices = FakeServices
    Answer = Answer
    play = staticmethod(play)
    deal = staticmethod(deal)
    make_brief = staticmethod(make_brief)


@pytest.fixture(scope="session")
def kit() -> Kit:
    return Kit()
