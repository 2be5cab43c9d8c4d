"""The loop around a model's forward: prefill what differs, once, then one token a step for all rows.

What it spares, measured on the demo model and two cores:

- Rows with the same prompt share one prefill, and prompts with the same beginning share the prefill of it:
  a chunk repeats most of its prompt tokens, and without this prefilling them takes longer than decoding.
- The cache grows in place (`cache`).
- Only the last position goes through the head, and as one matrix.
- A decode step gets a ready mask: without one, sdpa computes grouped heads on the CPU five times slower.
- Rows that are done leave the batch once they are a quarter of it.

All of it is a function of the requests in the batch, so a repeated batch is the same computation.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from coevo.errors import UserError
from coevo_transformers.cache import growing_cache, is_plain

LEAST_SHARED = 64
"""A shared beginning must spare so many tokens; below that its own forward costs more."""

_NEXT = 5

Step = Callable[[torch.Tensor, NDArray[np.int64], int], "tuple[NDArray[np.int64], NDArray[np.bool_]]"]
"""(logits (n, V), rows (n,), step) → (next tokens (n,), which rows go on (n,))."""


@dataclass(slots=True)
class _Prefilled:
    logits: torch.Tensor  # (B, V) at the last token of each prompt
    cache: Any
    mask: torch.Tensor  # (B, slots + new tokens), True where a slot may be attended to
    lengths: torch.Tensor  # (B,), tokens of each prompt
    slots: int  # filled in the cache


class Decoder:
    """Runs a causal language model.

    Attributes:
        shares: Whether prompts may share a prefilled beginning and the cache grows in place: needs plain
            attention, where a masked slot between two tokens changes nothing.
        ready_masks: Whether decode steps get a ready (B, 1, 1, slots) mask.

    Both are tried at start on two short prompts and given up where the model answers otherwise with them. A model
    that does not answer the same in a padded batch with a cache as without either is refused.
    """

    def __init__(self, model: Any, pad_id: int) -> None:
        self.model = model
        self.pad_id = pad_id
        self.device: torch.device = model.device
        self._config = model.config.get_text_config(decoder=True)
        accepted = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._takes_kept = "logits_to_keep" in accepted
        self._takes_positions = "position_ids" in accepted
        sdpa = getattr(self._config, "_attn_implementation", "") == "sdpa"
        self.shares = self.ready_masks = False
        self._try(shares=is_plain(self._config) and self._takes_positions, ready=sdpa and self.device.type == "cpu")

    @torch.inference_mode()
    def generate(self, prompts: Sequence[Sequence[int]], most: int, step: Step) -> None:
        """Generates for all prompts until `step` says that no row goes on.

        Args:
            prompts: Token ids, each at least one.
            most: The most new tokens any row may get: what the cache has room for.
            step: Called with the logits after each forward; chooses the tokens.
        """
        state = self._prefill(prompts, most)
        rows = np.arange(len(prompts))
        logits = state.logits
        for t in range(most):
            ids, alive = step(logits, rows, t)
            if not alive.any():
                return
            if alive.sum() <= 0.75 * len(rows):
                rows, ids = rows[alive], ids[alive]
                self._keep(state, torch.as_tensor(np.flatnonzero(alive), device=self.device))
            logits = self._step(state, ids, t)

    @torch.inference_mode()
    def probe(self, ids: Sequence[int]) -> dict[str, torch.Tensor]:
        """Logits (V,) after a prompt (`prefill`) and after one more token (`decode`)."""
        state = self._prefill([ids], 1)
        first = state.logits[0].clone()
        return {"prefill": first, "decode": self._step(state, np.array([ids[0]]), 0)[0].clone()}

    def _prefill(self, prompts: Sequence[Sequence[int]], most: int, least: int = LEAST_SHARED) -> _Prefilled:
        unique = list(dict.fromkeys(tuple(prompt) for prompt in prompts))
        place = {prompt: i for i, prompt in enumerate(unique)}
        own = torch.tensor([place[tuple(prompt)] for prompt in prompts], device=self.device)  # (B,)
        shared = common_start(unique) if self.shares else 0
        if shared * (len(unique) - 1) < least:
            shared = 0
        longest = max(len(prompt) for prompt in unique)
        cache = self._new_cache(longest + most)
        if shared:
            ids = torch.tensor([unique[0][:shared]], device=self.device)
            self._forward(ids, torch.ones_like(ids, dtype=torch.bool), None, cache)
            cache.reorder_cache(torch.zeros(len(unique), dtype=torch.long, device=self.device))
        ids, mask = self._padded([prompt[shared:] for prompt in unique])
        mask = torch.cat([torch.ones(len(unique), shared, dtype=torch.bool, device=self.device), mask], dim=1)
        positions = (mask.cumsum(-1) - 1).clamp_(min=0)
        logits = self._forward(ids, mask, positions[:, shared:], cache)  # (U, V)
        if len(unique) < len(prompts) or not torch.equal(own, torch.arange(len(own), device=self.device)):
            cache.reorder_cache(own)
            logits, mask = logits[own], mask[own]
        room = torch.ones(len(prompts), most, dtype=torch.bool, device=self.device)
        return _Prefilled(logits, cache, torch.cat([mask, room], dim=1), mask.sum(-1), longest)

    def _step(self, state: _Prefilled, ids: NDArray[np.int64], t: int) -> torch.Tensor:
        """Appends token t of every row and returns the logits after it, (B, V)."""
        tokens = torch.as_tensor(ids, device=self.device)[:, None]
        mask = state.mask[:, : state.slots + t + 1]
        if self.ready_masks:
            mask = mask[:, None, None, :]
        return self._forward(tokens, mask, (state.lengths + t)[:, None], state.cache)

    def _keep(self, state: _Prefilled, rows: torch.Tensor) -> None:
        state.cache.reorder_cache(rows)
        state.mask, state.lengths = state.mask[rows], state.lengths[rows]

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor | None, cache: Any
    ) -> torch.Tensor:
        """Logits at the last position, (B, V), for new tokens (B, n) that go into the cache."""
        named: dict[str, Any] = {self._cache_name: cache}
        if self._takes_kept:
            # As an index, not as the number 1: that cuts a strided slice, for which the head's matmul copies
            # its weight once a row.
            named["logits_to_keep"] = torch.tensor([ids.shape[1] - 1], device=self.device)
        if positions is not None and self._takes_positions:
            named["position_ids"] = positions
        if mask.dim() == 2:
            mask = mask.long()  # what transformers documents; some models do arithmetic on it
        return self.model(input_ids=ids, attention_mask=mask, use_cache=True, **named).logits[:, -1]

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids (n, longest), padded on the left, and which of them are tokens."""
        longest = max(len(prompt) for prompt in prompts)
        ids = torch.full((len(prompts), longest), self.pad_id, device=self.device)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = True
        return ids, mask

    def _new_cache(self, capacity: int) -> Any:
        return growing_cache(self._config, capacity) if self.shares else DynamicCache(config=self._config)

    def _try(self, *, shares: bool, ready: bool) -> None:
        """Compare a step from the cache with a forward of everything, and keep the shortcuts that agree too."""
        start = list(range(1, 9))
        prompts = [[*start, 9], [*start, 10, 11, 12]]
        try:
            whole = torch.cat([self._prefill([[*prompt, _NEXT]], 1).logits.float() for prompt in prompts])
        except Exception:  # noqa: BLE001 - as in `_tried`
            whole = None
        if whole is None or not _close(self._tried(prompts, shares=False, ready=False), whole):
            raise UserError(
                f"{type(self.model).__name__} does not continue a padded batch from its cache as it continues each "
                "text alone; expected a text model of plain attention"
            )
        if shares:
            for with_masks in (True, False) if ready else (False,):
                if _close(self._tried(prompts, shares=True, ready=with_masks), whole):
                    return
        self.shares = self.ready_masks = False

    @torch.inference_mode()
    def _tried(self, prompts: Sequence[Sequence[int]], *, shares: bool, ready: bool) -> torch.Tensor | None:
        """Logits (B, V) after one decode step, or None if the model fails; leaves the shortcuts as tried."""
        self.shares, self.ready_masks = shares, ready
        try:
            state = self._prefill(prompts, 1, least=1)
            return self._step(state, np.full(len(prompts), _NEXT), 0).float()
        except Exception:  # noqa: BLE001 - a model may fail in any way on what it was not made for
            return None


def _close(found: torch.Tensor | None, expected: torch.Tensor) -> bool:
    """Equal up to what other shapes do to 16-bit arithmetic; a mistake in mask or position does far more."""
    return found is not None and bool((found - expected).abs().max() <= 0.05 * expected.abs().max())


def common_start(prompts: Sequence[Sequence[int]]) -> int:
    """How many leading tokens all prompts share, leaving each at least one of its own."""
    shortest = min(len(prompt) for prompt in prompts)
    ids = np.array([prompt[: shortest - 1] for prompt in prompts])  # (n, shortest - 1)
    differs = np.flatnonzero((ids != ids[0]).any(axis=0))
    return int(differs[0]) if len(differs) else shortest - 1
