"""What every engine with an fp32 master does in the same way; plugins inherit it and add how to generate.

Imports nothing heavy: plugins are imported to list them.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from coevo.engines.prompts import Prompts
from coevo.engines.vocabulary import tokenizer_of
from coevo.models.catalogue import resolve
from coevo.records import Json, Perturbation, Request, Update

if TYPE_CHECKING:
    from coevo.weights.derived import DerivedWeights

T = TypeVar("T")


class Do(Protocol):
    """Does something where the weights live, such as in the engine's thread, and waits for it."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """The result of `work`."""
        ...


def here(work: Callable[[], T], /) -> T:
    """Does it here and now."""
    return work()


def chat_options(given: Mapping[str, Json] | None, enable_thinking: bool | None) -> dict[str, Json]:
    """Arguments of the chat template for every request, from an engine's two options for them."""
    return {**(given or {}), **({} if enable_thinking is None else {"enable_thinking": enable_thinking})}


class AdaptingEngine:
    """The part of an engine that is about weights, over a `DerivedWeights`.

    A subclass calls `adapt_by` before anything else here is used.
    """

    adapts = True

    def adapt_by(self, weights: DerivedWeights, folder: Path, do: Do = here) -> None:
        """Takes the parts.

        Args:
            weights: What is served.
            folder: The checkpoint that it began with.
            do: Where the weights live.
        """
        self._adapting, self._folder, self._there = weights, folder, do
        self._slot: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @staticmethod
    def token_counter(model: str, options: Mapping[str, Json]) -> Callable[[Request], int] | None:
        """Counts prompts as an engine with these options will, by the model's tokenizer alone.

        None where the model is not on disk or transformers is not installed; the engine then says what is missing.

        Raises:
            UserError: there is no such model, or its tokenizer or chat template is of no use.
        """
        folder = resolve(model)
        if not isinstance(folder, Path) or importlib.util.find_spec("transformers") is None:
            return None
        chat = chat_options(options.get("chat_options"), options.get("enable_thinking"))
        prompts = Prompts(tokenizer_of(folder), chat)
        return lambda request: len(prompts(request).ids)

    def own_slot(self) -> asyncio.Lock:
        """The lock of the running loop, for engines of one slot: one that a lease waited on is its loop's for ever."""
        loop = asyncio.get_running_loop()
        if self._slot is None or self._slot[0] is not loop:
            self._slot = (loop, asyncio.Lock())
        return self._slot[1]

    def apply(self, update: Update) -> None:
        """Move the master.

        Raises:
            ValueError: an update that is not of kind `seeds` and family `normal-v1`.
            RunError: the update made weights NaN.
        """
        self._there(lambda: self._adapting.apply(update))

    def digest(self) -> str:
        """The `weights_digest` of the master."""
        return self._there(self._adapting.digest)

    def moved(self, perturbation: Perturbation) -> float:
        """Share of a fixed sample of weights whose served value the perturbation changes, 0 to 1."""
        return self._there(lambda: self._adapting.moved(perturbation))

    def reached(self) -> Mapping[str, float]:
        """How much of the last update reached the served weights, on a fixed sample; empty before one.

        `cosine` of the update and `cosine_run` of all since the base, each between the change meant (fp32) and the
        change served; where they can be read back, `drift` (rms) and `drifted` (share of weights): served against
        its definition.
        """
        return self._there(self._adapting.reached)

    def export(self, path: Path, dtype: str | None = None) -> None:
        """Write the centre as a folder that transformers and vLLM load, in the checkpoint's own format by default.

        It is made from the master: with in-place weights it is what was meant, not what was served.

        Raises:
            UserError: the folder is in use, or the format unknown.
        """
        from coevo.models.export import export_model

        self._there(lambda: export_model(self._adapting.master, self._folder, Path(path), dtype))

    def save_anchor(self, path: Path) -> None:
        """Write the fp32 master."""
        self._there(lambda: self._adapting.master.save_anchor(path))

    def load_anchor(self, path: Path) -> None:
        """Take the master from an anchor; a damaged one changes nothing, the caller compares digests."""
        self._there(lambda: self._adapting.load_anchor(path))

    def apply_seconds(self) -> float:
        """Wall time that all updates of this process took: what replaying them would cost."""
        return self._adapting.apply_seconds
