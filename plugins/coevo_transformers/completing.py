"""From requests to completions: what fits is batched by length, decoded and cut at its stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coevo.engines.decoding import Decoding
from coevo.engines.prompts import Prompt, Prompts
from coevo.errors import RunInterrupted
from coevo.records import Completion, Request, Sampling
from coevo_transformers.decode import Decoder
from coevo_transformers.sampler import Sampler
from coevo_transformers.stopping import TextStream


@dataclass(slots=True)
class _Row:
    """A request being answered."""

    index: int
    prompt: Prompt
    sampling: Sampling
    seed: int
    stream: TextStream
    wants_logprobs: bool
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    reason: str = "length"

    @property
    def tokens(self) -> int:
        """Prompt and longest answer."""
        return len(self.prompt.ids) + self.sampling.max_new_tokens

    def completion(self) -> Completion:
        """What was answered."""
        logprobs = tuple(self.logprobs) if self.wants_logprobs else None
        text = self.prompt.opened + self.stream.finish()
        return Completion(text, self.prompt.ids, tuple(self.ids), self.reason, logprobs)


@dataclass(frozen=True, slots=True)
class Limits:
    """What fits.

    Attributes:
        context_tokens: Longest prompt plus answer, None where the model names no limit.
        rows: Most requests in a batch.
        cache_tokens: Most slots of a batch's key/value cache, unless it is of one request.
    """

    context_tokens: int | None
    rows: int
    cache_tokens: int


class Completer:
    """Answers requests with the weights that are being served. Not for several threads at once."""

    def __init__(
        self, decoder: Decoder, prompts: Prompts, tokenizer: Any, eos_ids: frozenset[int], limits: Limits
    ) -> None:
        self._decoder, self._prompts, self._texts = decoder, prompts, Decoding(tokenizer)
        self._eos = np.array(sorted(eos_ids), dtype=np.int64)
        self.limits = limits

    def complete(self, requests: Sequence[Request], stop: Event) -> list[Completion]:
        """Answers all, in order.

        A completion is a function of its batch, and the batches of the set of requests: they are sorted by
        prompt length and cut where a limit is reached, whatever their order was.

        Args:
            requests: Each with its own sampling and seed.
            stop: Once set, the call raises before its next token.

        Raises:
            UserError: The chat template refuses a request.
            RunInterrupted: `stop` was set.
        """
        answers: list[Completion | None] = [None] * len(requests)
        fitting: list[_Row] = []
        for index, request in enumerate(requests):
            row = self._row(index, request)
            if self.limits.context_tokens is not None and row.tokens > self.limits.context_tokens:
                answers[index] = Completion("", row.prompt.ids, (), "context_overflow")
            else:
                fitting.append(row)
        for batch in self._batches(fitting):
            self._answer(batch, stop)
            for row in batch:
                answers[row.index] = row.completion()
        return [answer for answer in answers if answer is not None]

    def _batches(self, rows: list[_Row]) -> list[list[_Row]]:
        """By prompt, so that padding is short and equal prompts are together."""
        batches: list[list[_Row]] = []
        for row in sorted(rows, key=lambda row: (len(row.prompt.ids), row.prompt.ids, row.seed, row.index)):
            batch = [*batches[-1], row] if batches else [row]
            longest = max(len(r.prompt.ids) for r in batch) + max(r.sampling.max_new_tokens for r in batch)
            if batches and len(batch) <= self.limits.rows and len(batch) * longest <= self.limits.cache_tokens:
                batches[-1] = batch
            else:
                batches.append([row])
        return batches

    def _row(self, index: int, request: Request) -> _Row:
        prompt = self._prompts(request)
        stream = TextStream(self._texts, prompt.ids, request.stop, prompt.trimmed)
        return _Row(index, prompt, request.sampling or Sampling(), request.seed, stream, request.logprobs)

    def _answer(self, batch: Sequence[_Row], stop: Event) -> None:
        sampler = Sampler([row.sampling for row in batch], [row.seed for row in batch])
        limits = np.array([row.sampling.max_new_tokens for row in batch])
        running = np.ones(len(batch), dtype=bool)
        wanted = np.array([row.wants_logprobs for row in batch])

        def step(logits: torch.Tensor, rows: NDArray[np.int64], t: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
            if stop.is_set():
                raise RunInterrupted("interrupted while generating")
            # A row that is done may still be in the batch; it must not ask for numbers beyond its own.
            here = np.flatnonzero(running[rows])
            ids = np.full(len(rows), self._decoder.pad_id, dtype=np.int64)
            some = logits if len(here) == len(rows) else logits[torch.as_tensor(here, device=logits.device)]
            ids[here] = sampler.pick(some, rows[here], t)
            if wanted[rows[here]].any():
                self._note_logprobs(batch, some, rows[here], ids[here])
            ended = np.isin(ids, self._eos)
            for place in here:
                row, token = batch[int(rows[place])], int(ids[place])
                row.ids.append(token)
                if ended[place] or row.stream.push(token):
                    row.reason = "stop"
                    running[rows[place]] = False
                elif t + 1 >= limits[rows[place]]:
                    running[rows[place]] = False
            return ids, running[rows]

        self._decoder.generate([row.prompt.ids for row in batch], int(limits.max()), step)

    @staticmethod
    def _note_logprobs(
        batch: Sequence[_Row], logits: torch.Tensor, rows: NDArray[np.int64], ids: NDArray[np.int64]
    ) -> None:
        """Natural logarithms under the model's own distribution: before temperature and filters."""
        picked = torch.log_softmax(logits.float(), -1).gather(-1, torch.as_tensor(ids, device=logits.device)[:, None])
        values = [float(value) for value in picked[:, 0].cpu().numpy()]
        for place, value in zip(rows, values, strict=True):
            row = batch[int(place)]
            if row.wants_logprobs:
                row.logprobs.append(value)
