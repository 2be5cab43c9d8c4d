"""From requests to completions: what fits is batched by length, decoded and cut at its stop."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coevo.errors import RunInterrupted
from coevo.records import Completion, Request, Sampling
from coevo_transformers.decode import Decoder
from coevo_transformers.prompts import Prompt, Prompts
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

    def completion(self) -> Completion:
        logprobs = tuple(self.logprobs) if self.wants_logprobs else None
        return Completion(self.stream.finish(), self.prompt.ids, tuple(self.ids), self.reason, logprobs)


class Completer:
    """Answers requests with the weights that are being served. Not for several threads at once.

    Attributes:
        context_tokens: Longest prompt plus answer, None where the model names no limit.
        cancelled: Set to make a running `complete` raise at its next token.
    """

    def __init__(
        self,
        decoder: Decoder,
        prompts: Prompts,
        tokenizer: Any,
        eos_ids: frozenset[int],
        context_tokens: int | None,
        rows: int,
    ) -> None:
        self._decoder, self._prompts, self._tokenizer = decoder, prompts, tokenizer
        self._eos = np.array(sorted(eos_ids), dtype=np.int64)
        self.context_tokens = context_tokens
        self._rows = rows
        self.cancelled = Event()

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers all, in order.

        A completion is a function of its batch: the requests are sorted by prompt length and cut into
        batches of at most `rows`, whatever their order.

        Raises:
            UserError: The chat template refuses a request.
            RunInterrupted: `cancelled` was set.
        """
        answers: list[Completion | None] = [None] * len(requests)
        fitting: list[_Row] = []
        for index, request in enumerate(requests):
            row = self._row(index, request)
            if self.context_tokens is not None and (
                len(row.prompt.ids) + row.sampling.max_new_tokens > self.context_tokens
            ):
                answers[index] = Completion("", row.prompt.ids, (), "context_overflow")
            else:
                fitting.append(row)
        fitting.sort(key=lambda row: (len(row.prompt.ids), row.prompt.ids))
        for start in range(0, len(fitting), self._rows):
            batch = fitting[start : start + self._rows]
            self._answer(batch)
            for row in batch:
                answers[row.index] = row.completion()
        return [answer for answer in answers if answer is not None]

    def _row(self, index: int, request: Request) -> _Row:
        prompt = self._prompts(request)
        stream = TextStream(self._tokenizer, prompt.ids, request.stop, prompt.trimmed)
        return _Row(index, prompt, request.sampling or Sampling(), request.seed, stream, request.logprobs)

    def _answer(self, batch: Sequence[_Row]) -> None:
        sampler = Sampler([row.sampling for row in batch], [row.seed for row in batch])
        limits = np.array([row.sampling.max_new_tokens for row in batch])
        running = np.ones(len(batch), dtype=bool)
        wanted = np.array([row.wants_logprobs for row in batch])

        def step(logits: torch.Tensor, rows: NDArray[np.int64], t: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
            if self.cancelled.is_set():
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
