"""What the run knows of its place and spending, what of it updaters are shown, and the hard budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from coevo.numerics.seeds import derive
from coevo.reports import BatchReport, Ledger


@dataclass(slots=True)
class Budget:
    """Limits that are never exceeded, kills and resumes included. None is no limit.

    A batch that might not fit is not started, and everything that is asked is written before it is asked.
    """

    calls: int | None = None
    tokens: int | None = None

    def refuses(self, spent: Ledger, calls: int, tokens: Callable[[], int]) -> str:
        """Which limit a batch of at most `calls` calls and `tokens()` tokens could break, or empty."""
        if self.calls is not None and spent.calls + calls > self.calls:
            return "calls"
        if self.tokens is not None and spent.tokens + tokens() > self.tokens:
            return "tokens"
        return ""

    def used(self, ledger: Ledger) -> float:
        """The largest used share of any limit, 0 without limits."""
        shares = [0.0]
        if self.calls:
            shares.append(ledger.calls / self.calls)
        if self.tokens:
            shares.append(ledger.tokens / self.tokens)
        return max(shares)


@dataclass(slots=True)
class Unbooked:
    """What a run has asked and no line of its journal counts: what kills cut off, and the batch in progress.

    Attributes:
        lost: of batches that were left, and of chunks that had to run again.
        place: the batch that an earlier process left unfinished, then the one in progress; `place_of` writes it.
        kept: of its chunks that were saved before this process.
        unanswered: by these in vain.
        in_flight: by its other chunks, at most.
    """

    lost: Ledger = field(default_factory=Ledger)
    place: str = ""
    kept: Ledger = field(default_factory=Ledger)
    unanswered: Ledger = field(default_factory=Ledger)
    in_flight: Ledger = field(default_factory=Ledger)

    @property
    def total(self) -> Ledger:
        """All of it."""
        return self.lost + self.kept + self.unanswered + self.in_flight

    def beside(self, place: str) -> Ledger:
        """What a batch at `place` cannot count on: all but the answers of its own chunks that were kept."""
        return self.lost + self.in_flight + self.unanswered + (Ledger() if place == self.place else self.kept)

    def enter(self, place: str) -> None:
        """A batch is begun, or gone on with."""
        self.lost = self.lost + self.in_flight
        if place != self.place:
            self.lost = self.lost + self.kept + self.unanswered
            self.kept = self.unanswered = Ledger()
        self.place, self.in_flight = place, Ledger()

    def commit(self) -> None:
        """The batch has its line."""
        self.kept = self.unanswered = Ledger()


def place_of(generation: int, batch: int, probe: bool = False) -> str:
    """The name of a batch, or of the probe before it, in the run's folder."""
    return f"g{generation:04d}-b{batch:02d}{'-probe' if probe else ''}"


@dataclass(slots=True)
class RunServices:
    """Where one run is, and what it has spent; updaters are given its `Shown`.

    `planned` is the number of adapting batches of the whole run, `adapted` how many are committed; `reserved_calls`
    are kept for the probe at the end; `unbooked` is held against the budgets and shown to nobody.
    """

    root_seed: int
    folder: Path
    budget: Budget = field(default_factory=Budget)
    ledger: Ledger = field(default_factory=Ledger)
    generation: int = 0
    batch: int = 0
    batch_answers: int = 0
    member_answers: int = 0
    planned: int = 1
    adapted: int = 0
    reserved_calls: int = 0
    unbooked: Unbooked = field(default_factory=Unbooked)

    @property
    def calls_left(self) -> int | None:
        """Model calls that batches may still make; None without a limit."""
        limit = self.budget.calls
        return None if limit is None else max(0, limit - self.ledger.calls - self.reserved_calls)

    def seed(self, *coordinates: str | int) -> int:
        """A 64-bit seed for an updater's own randomness at this generation and batch."""
        return derive(self.root_seed, "updater", self.generation, self.batch, *coordinates)

    def progress(self) -> float:
        """t/T of the adapting batches, or the used share of the budget where that is larger."""
        return min(max(self.adapted / max(self.planned, 1), self.budget.used(self.ledger)), 1.0)

    def spent(self, probe: bool = False) -> Ledger:
        """What is gone from the budgets when the batch here, or the probe before it, is planned for."""
        return self.ledger + self.unbooked.beside(place_of(self.generation, self.batch, probe))

    def spend(self, report: BatchReport) -> None:
        """Book a finished batch."""
        self.ledger = self.ledger + Ledger(report.calls, report.prompt_tokens, report.completion_tokens)
        self.adapted += report.adapt


class Shown:
    """`coevo.interfaces.Services` for the updaters of a run: nothing of it can be set, and budgets are not in it."""

    __slots__ = ("_run",)

    def __init__(self, run: RunServices) -> None:
        self._run = run

    @property
    def root_seed(self) -> int:
        """Of the run."""
        return self._run.root_seed

    @property
    def folder(self) -> Path:
        """Where an updater may write files of its own."""
        return self._run.folder

    @property
    def generation(self) -> int:
        """Where the loop is."""
        return self._run.generation

    @property
    def batch(self) -> int:
        """Where the loop is in the generation."""
        return self._run.batch

    @property
    def ledger(self) -> Ledger:
        """A copy: what is done to it is not booked."""
        return replace(self._run.ledger)

    @property
    def batch_answers(self) -> int:
        """Rollouts that an adapting `zip` batch needs to fill every member."""
        return self._run.batch_answers

    @property
    def member_answers(self) -> int:
        """How many of them each member gives."""
        return self._run.member_answers

    @property
    def calls_left(self) -> int | None:
        """Model calls that batches may still make; None without a limit."""
        return self._run.calls_left

    def seed(self, *coordinates: str | int) -> int:
        """A 64-bit seed for an updater's own randomness at this generation and batch."""
        return self._run.seed(*coordinates)

    def progress(self) -> float:
        """t/T of the adapting batches, or the used share of the budget where that is larger."""
        return self._run.progress()
