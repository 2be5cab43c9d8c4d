"""What the run offers to its updaters, and the hard budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from coevo.interfaces import Ledger
from coevo.records import BatchReport
from coevo.seeds import derive


@dataclass(slots=True)
class Budget:
    """Limits that are never exceeded: a batch that might not fit is not started. None is no limit."""

    calls: int | None = None
    tokens: int | None = None

    def refuses(self, ledger: Ledger, calls: int, tokens: Callable[[], int]) -> str:
        """Which limit a batch of at most `calls` calls and `tokens()` tokens could break, or empty."""
        if self.calls is not None and ledger.calls + calls > self.calls:
            return "calls"
        if self.tokens is not None and ledger.tokens + tokens() > self.tokens:
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
class RunServices:
    """`coevo.interfaces.Services` for one run.

    `planned` is the number of adapting batches of the whole run, `adapted` how many are committed; `reserved_calls`
    are kept for the probe at the end.
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

    def spend(self, report: BatchReport) -> None:
        """Book a finished batch."""
        self.ledger = Ledger(
            self.ledger.calls + report.calls,
            self.ledger.prompt_tokens + report.prompt_tokens,
            self.ledger.completion_tokens + report.completion_tokens,
        )
        self.adapted += report.adapt
