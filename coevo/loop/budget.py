"""What a batch may ask of the engine, and what it has: noted before it is asked, never more than there is room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from coevo.errors import PluginError
from coevo.loop.store import Chunks
from coevo.records import Request, Rollout
from coevo.reports import BatchReport, Ledger


@dataclass(slots=True)
class Tries:
    """The requests of one batch: budgets count every one, answered or not.

    How many an episode may ask for the first time is its task's to say (`max_calls`) and is held against each by
    itself; here is what comes on top, and the count of all.

    Attributes:
        spare: requests that may be asked again, None for any number.
        spare_tokens: tokens that those may cost, None for any number.
        costs: tokens that a request of the plan costs at most, (prompt, answer), by its `key`; empty where they are not
            limited. What a request that was not answered cost is not known; it counts with these, and with none where
            there are none.
        chunks: where it is noted, None for nowhere.
        unanswered: by chunks that were saved, so far.
    """

    spare: int | None = None
    spare_tokens: int | None = None
    costs: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    chunks: Chunks | None = None
    unanswered: Ledger = field(default_factory=Ledger)
    _open: dict[int, Ledger] = field(default_factory=dict[int, Ledger])

    def keep(self, chunks: Chunks) -> None:
        """Note what is asked in `chunks`; what is in there already counts."""
        self.chunks, self.unanswered = chunks, chunks.unanswered

    def asking(self, chunk: int, requests: Sequence[Request]) -> None:
        """These are about to be asked.

        Raises:
            PluginError: they are not in the plan, so that no budget could be kept.
            RunError: it cannot be noted.
        """
        if self.costs and not all(key(request) in self.costs for request in requests):
            raise PluginError(
                "an episode asks for something else than was planned, so that --tokens cannot be kept; use --calls"
            )
        most = self._most(requests)
        if self.chunks is not None:
            self.chunks.asking(chunk, most)
        self._open[chunk] = self._open.get(chunk, Ledger()) + most

    def answered(self, chunk: int, requests: Sequence[Request]) -> None:
        """A rollout will tell of these."""
        self._open[chunk] = self._open[chunk] - self._most(requests)

    def again(self, requests: Sequence[Request]) -> bool:
        """Whether these may be asked again; if so, they are taken off what is to spare."""
        tokens = self._most(requests).tokens
        if self.spare is not None and len(requests) > self.spare:
            return False
        if self.spare_tokens is not None and tokens > self.spare_tokens:
            return False
        self.spare = None if self.spare is None else self.spare - len(requests)
        self.spare_tokens = None if self.spare_tokens is None else self.spare_tokens - tokens
        return True

    def save(self, rollouts: Sequence[Rollout]) -> None:
        """Save a chunk whose episodes are over.

        Raises:
            ValueError: nothing is kept.
        """
        if self.chunks is None:
            raise ValueError("there is nowhere to save a chunk")
        unanswered = self._open.get(rollouts[0].provenance.chunk, Ledger())
        self.chunks.save(rollouts, unanswered)
        self.unanswered = self.unanswered + unanswered

    def booked(self, report: BatchReport) -> BatchReport:
        """The report with what no rollout tells."""
        return replace(
            report,
            calls=report.calls + self.unanswered.calls,
            prompt_tokens=report.prompt_tokens + self.unanswered.prompt_tokens,
            completion_tokens=report.completion_tokens + self.unanswered.completion_tokens,
        )

    def _most(self, requests: Sequence[Request]) -> Ledger:
        each = [self.costs[key(request)] for request in requests] if self.costs else []
        return Ledger(len(requests), sum(prompt for prompt, _ in each), sum(answer for _, answer in each))


def key(request: Request) -> str:
    """Equal for requests that cost the same at most, whatever the seed; its `sampling` is filled in."""
    most = None if request.sampling is None else request.sampling.max_new_tokens
    return repr((request.messages, request.prefill, most))
