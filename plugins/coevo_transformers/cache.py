"""A key/value cache that grows in place.

transformers' own `DynamicCache` copies the whole cache once a token and layer. This one reserves the room of
the whole generation and writes into it. It is used where every layer is plain attention over the whole
context; models with other layers keep the cache that transformers gives them.
"""

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer


class GrowingLayer(DynamicLayer):
    """One layer's keys and values, (batch, heads, used, width), views of buffers with room for `capacity`."""

    def __init__(self, capacity: int) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        self.capacity = capacity
        self.used = 0
        self._room: tuple[torch.Tensor, torch.Tensor] | None = None

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Reserve the room, now that shapes, format and device are known."""
        self._room = (_room(key_states, self.capacity), _room(value_states, self.capacity))
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append (batch, heads, new, width) and return all so far."""
        if self._room is None:
            self.lazy_initialization(key_states, value_states)
        assert self._room is not None
        start, self.used = self.used, self.used + key_states.shape[-2]
        for room, new in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : self.used] = new
        return self._show(*self._room)

    def _show(self, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What is used of the buffers, also under the names that transformers looks at."""
        shown = (keys[:, :, : self.used], values[:, :, : self.used])
        self.keys, self.values = shown
        return shown

    def get_seq_length(self, *args: Any, **kwargs: Any) -> int:
        """How many slots are filled."""
        return self.used

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Make the batch the rows `beam_idx` (n,) of the present one: fewer, more, in any order."""
        if self._room is None:
            return
        old, count = self._room, len(beam_idx)
        self._room = (_room(old[0], self.capacity, count), _room(old[1], self.capacity, count))
        for room, part in zip(self._room, old, strict=True):
            room[:, :, : self.used] = part[:, :, : self.used].index_select(0, beam_idx)
        self._show(*self._room)


def _room(like: torch.Tensor, capacity: int, batch: int | None = None) -> torch.Tensor:
    own, heads, _, width = like.shape
    return like.new_empty(own if batch is None else batch, heads, capacity, width)


def is_plain(config: Any) -> bool:
    """Whether every layer attends to the whole context and nothing else is cached."""
    layers = DynamicCache(config=config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


def growing_cache(config: Any, capacity: int) -> Cache:
    """An empty cache with room for `capacity` slots, for a model that `is_plain`."""
    return Cache(layers=[GrowingLayer(capacity) for _ in DynamicCache(config=config).layers])
