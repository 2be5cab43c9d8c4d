"""Drawing tokens: a request's choices depend on its own logits and seed and on nothing else in the batch.

Request with seed s draws its t-th token with the uniform number u(s, t), which comes from Philox under key s
and counter t: there is no state to share and no order to keep. The token is the inverse of the cumulative
distribution at u, in vocabulary order, so that equal seeds make nearly equal distributions choose equal
tokens; that is what common random numbers are for. (In order of probability two tokens that change places
would flip the choice.)

Filters act in this order: presence penalty, temperature, min-p, top-k, top-p; each cuts the tail of the
distribution sorted by probability, and of equally probable tokens the lower id stays. Temperature 0 is the
most probable token, the lowest id of several; the other filters then have nothing to do.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from coevo.records import Sampling
from coevo.weights.noise import philox4x32, split64, tensor_key

CANDIDATES = 512
"""How many of the most probable tokens are looked at before a row's whole vocabulary is sorted."""

_BLOCK = 256
_STREAM = tensor_key("coevo: uniform numbers for tokens")
"""Words 2 and 3 of the counter: no tensor's noise uses them, whatever the seeds."""


def uniforms(seed: int, count: int) -> NDArray[np.float64]:
    """u(seed, t) for t = 0 … count - 1, float64 of shape (count,) in [0, 1), multiples of 2^-53."""
    counter = np.zeros((4, count), dtype=np.uint32)
    counter[0] = np.arange(count, dtype=np.uint32)
    counter[2], counter[3] = split64(_STREAM)
    words = philox4x32(counter, split64(seed)).astype(np.uint64)
    high, low = words[0] >> np.uint64(5), words[1] >> np.uint64(6)  # 27 and 26 bits
    return (high * np.uint64(1 << 26) + low).astype(np.float64) * 2.0**-53


class Filters(NamedTuple):
    """What cuts the tail, for each row (n,): 1, 0 and 0 are off."""

    top_p: NDArray[np.float64]
    top_k: NDArray[np.int64]
    min_p: NDArray[np.float64]

    def of(self, rows: NDArray[np.int64]) -> "Filters":
        """The filters of some rows."""
        return Filters(self.top_p[rows], self.top_k[rows], self.min_p[rows])


class Sampler:
    """Draws for a batch of requests that step together.

    Usage:

        sampler = Sampler(samplings, seeds)
        ids = sampler.pick(logits, rows, step)    # rows: which requests the rows of logits belong to
    """

    def __init__(self, samplings: Sequence[Sampling], seeds: Sequence[int]) -> None:
        self._temperature = np.array([s.temperature for s in samplings], dtype=np.float64)
        self._filters = Filters(
            np.array([s.top_p for s in samplings], dtype=np.float64),
            np.array([s.top_k for s in samplings], dtype=np.int64),
            np.array([s.min_p for s in samplings], dtype=np.float64),
        )
        self._penalty = np.array([s.presence_penalty for s in samplings], dtype=np.float64)
        cuts = (self._filters.top_p < 1) | (self._filters.top_k > 0) | (self._filters.min_p > 0)
        # It is divided by in float32, where it may be rounded to 0, and dividing by that gives no probabilities.
        self._greedy = self._temperature < np.finfo(np.float32).tiny
        self._cut = cuts & ~self._greedy
        self._uniforms = [uniforms(seed, s.max_new_tokens) for s, seed in zip(samplings, seeds, strict=True)]
        self._seen: torch.Tensor | None = None  # (B, V), which tokens each request has generated

    def pick(self, logits: torch.Tensor, rows: NDArray[np.int64], step: int) -> NDArray[np.int64]:
        """The next token of each row.

        Args:
            logits: (n, V), any float type and device; not changed.
            rows: (n,), the request that each row belongs to.
            step: How many tokens these requests have generated; below their max_new_tokens.

        Returns:
            (n,) token ids.
        """
        scores = self._penalised(logits.float(), rows)
        ids = np.empty(len(rows), dtype=np.int64)
        greedy = self._greedy[rows]
        if greedy.any():
            ids[greedy] = scores.argmax(-1).cpu().numpy()[greedy]
        drawn = np.flatnonzero(~greedy)
        if len(drawn):
            own = rows[drawn]
            heat = torch.as_tensor(self._temperature[own], dtype=torch.float32, device=scores.device)
            chosen = scores if len(drawn) == len(rows) else scores[torch.as_tensor(drawn, device=scores.device)]
            top = chosen.amax(-1, keepdim=True)  # subtracted first: a tiny temperature must not overflow
            probabilities = torch.softmax((chosen - top) / heat[:, None], dim=-1)  # (d, V)
            u = np.array([self._uniforms[int(row)][step] for row in own], dtype=np.float64)
            ids[drawn] = self._draw(probabilities, own, u)
        if self._seen is not None:
            device = self._seen.device
            self._seen[torch.as_tensor(rows, device=device), torch.as_tensor(ids, device=device)] = True
        return ids

    def _penalised(self, scores: torch.Tensor, rows: NDArray[np.int64]) -> torch.Tensor:
        if not self._penalty.any():
            return scores
        if self._seen is None:
            shape = (len(self._penalty), scores.shape[-1])
            self._seen = torch.zeros(shape, dtype=torch.bool, device=scores.device)
        seen = self._seen[torch.as_tensor(rows, device=scores.device)]
        penalty = torch.as_tensor(self._penalty[rows], dtype=scores.dtype, device=scores.device)
        return scores - penalty[:, None] * seen

    def _draw(self, probabilities: torch.Tensor, rows: NDArray[np.int64], u: NDArray[np.float64]) -> NDArray[np.int64]:
        cut = self._cut[rows]
        ids = np.empty(len(rows), dtype=np.int64)
        if not cut.all():
            whole = np.flatnonzero(~cut)
            ids[whole] = _invert_whole(_rows(probabilities, whole), u[whole])
        if cut.any():
            some = np.flatnonzero(cut)
            ids[some] = self._draw_cut(_rows(probabilities, some), rows[some], u[some])
        return ids

    def _draw_cut(
        self, probabilities: torch.Tensor, rows: NDArray[np.int64], u: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Looks at the most probable tokens; a row whose cut lies beyond them is drawn from all its tokens."""
        count = min(CANDIDATES, probabilities.shape[-1])
        top = probabilities.topk(count, dim=-1)  # (n, count) each
        found, where = _numpy32(top.values), top.indices.cpu().numpy()
        filters = self._filters.of(rows)
        keep, settled = kept(found, filters, whole=count == probabilities.shape[-1])
        ids = np.empty(len(rows), dtype=np.int64)
        if settled.any():
            ids[settled] = _choose(found[settled], where[settled], keep[settled], u[settled])
        if not settled.all():
            rest = np.flatnonzero(~settled)
            values = _numpy32(_rows(probabilities, rest))
            descending = -np.sort(-values, axis=-1)
            keep, _ = kept(descending, filters.of(rest), whole=True)
            vocabulary = np.arange(probabilities.shape[-1], dtype=np.int64)
            every = np.repeat(vocabulary[None, :], len(rest), axis=0)
            ids[rest] = _choose(values, every, keep, u[rest], threshold=_lowest(descending, keep))
        return ids


def _numpy32(values: torch.Tensor) -> NDArray[np.float32]:
    return values.cpu().numpy()


def _rows(values: torch.Tensor, rows: NDArray[np.int64]) -> torch.Tensor:
    return values if len(rows) == len(values) else values[torch.as_tensor(rows, device=values.device)]


def kept(
    descending: NDArray[np.float32], filters: Filters, *, whole: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """How many of the most probable tokens the filters keep.

    Args:
        descending: (n, m), probabilities in falling order, the m largest of each row.
        filters: Of the n rows.
        whole: Whether the m are all tokens there are.

    Returns:
        (n,) counts of 1 to m, and (n,) whether the count is certain: without `whole` the cut, or tokens that
        are as probable as the last one kept, may lie beyond the m.
    """
    top_p, top_k, min_p = filters
    count = descending.shape[-1]
    sorted_ = descending.astype(np.float64)
    limit = np.where(top_k > 0, np.minimum(top_k, count), count)
    limit = np.where(min_p > 0, np.minimum(limit, (sorted_ >= min_p[:, None] * sorted_[:, :1]).sum(-1)), limit)
    cumulative = np.cumsum(sorted_, axis=-1)
    bounded = limit < count  # top-k or min-p cut inside: their mass is what top-p is a share of
    mass = np.where(bounded, np.take_along_axis(cumulative, limit[:, None] - 1, -1)[:, 0], 1.0)
    reached = (cumulative < (top_p * mass)[:, None]).sum(-1) + 1  # the token that reaches the mass is kept
    number = np.where(top_p < 1, np.minimum(reached, limit), limit)
    if whole:
        return number, np.ones(len(number), dtype=bool)
    open_ended = ((top_k > count) | (min_p > 0)) & ~bounded  # they cut, but beyond what is known here
    inside = (number < count) & (_lowest(descending, number) > descending[:, -1])
    return number, inside & ~open_ended


def _lowest(descending: NDArray[np.float32], keep: NDArray[np.int64]) -> NDArray[np.float32]:
    """The probability of the last token kept, (n,)."""
    return np.take_along_axis(descending, keep[:, None] - 1, -1)[:, 0]


def _choose(
    values: NDArray[np.float32],
    ids: NDArray[np.int64],
    keep: NDArray[np.int64],
    u: NDArray[np.float64],
    threshold: NDArray[np.float32] | None = None,
) -> NDArray[np.int64]:
    """Inverts the distribution over the `keep` most probable of the candidates, in vocabulary order.

    Args:
        values: (n, m) probabilities, falling unless `threshold` is given.
        ids: (n, m) their tokens.
        keep: (n,) how many to keep; of equally probable ones the lowest ids.
        u: (n,) in [0, 1).
        threshold: (n,) the probability of the last one kept; then `ids` must rise along a row.

    Returns:
        (n,) tokens.
    """
    if threshold is None:
        threshold = _lowest(values, keep)
        order = np.argsort(ids, axis=-1)
        values, ids = np.take_along_axis(values, order, -1), np.take_along_axis(ids, order, -1)
    above = values > threshold[:, None]
    level = values == threshold[:, None]
    places = (keep - above.sum(-1))[:, None]
    weights = np.where(above | (level & (np.cumsum(level, axis=-1) <= places)), values, 0).astype(np.float64)
    return np.take_along_axis(ids, _invert(weights, u)[:, None], -1)[:, 0]


def _invert(weights: NDArray[np.float64], u: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row of weights (n, m) the first index whose cumulative weight exceeds u times the total."""
    cumulative = np.cumsum(weights, axis=-1)
    index = (cumulative <= (u * cumulative[:, -1])[:, None]).sum(-1)
    # u times the total may round up to the total: then the last token of any weight is meant.
    last = weights.shape[-1] - 1 - np.argmax(weights[:, ::-1] > 0, axis=-1)
    return np.minimum(index, last)


def _invert_whole(probabilities: torch.Tensor, u: NDArray[np.float64]) -> NDArray[np.int64]:
    """`_invert` over a whole vocabulary (n, V) on its device: first the block, then the token in it."""
    n, size = probabilities.shape
    padded = torch.nn.functional.pad(probabilities, (0, -size % _BLOCK)).view(n, -1, _BLOCK)  # (n, blocks, 256)
    blocks = padded.sum(-1, dtype=torch.float64).cpu().numpy()
    ends = np.cumsum(blocks, axis=-1)
    target = u * ends[:, -1]
    block = _invert(blocks, u)
    inside: NDArray[Any] = padded[torch.arange(n), torch.as_tensor(block)].cpu().numpy().astype(np.float64)  # (n, 256)
    before = np.take_along_axis(ends, block[:, None], -1)[:, 0] - np.take_along_axis(blocks, block[:, None], -1)[:, 0]
    index = (np.cumsum(inside, axis=-1) <= (target - before)[:, None]).sum(-1)
    last = _BLOCK - 1 - np.argmax(inside[:, ::-1] > 0, axis=-1)
    return block * _BLOCK + np.minimum(index, last)
