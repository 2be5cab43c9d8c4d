"""A loaded model with its weights, prompts and decoder: what lives in the engine's thread."""

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from coevo.engines.canary import Canary, run_canary
from coevo.engines.prompts import Prompts
from coevo.engines.vocabulary import tokenizer_of
from coevo.errors import UserError
from coevo.models.catalogue import pull, resolve
from coevo.records import Json, Perturbation, Sampling
from coevo.weights.dtypes import Stored
from coevo.weights.selection import select, with_scales
from coevo_transformers.completing import Completer, Limits
from coevo_transformers.decode import Decoder
from coevo_transformers.inplace import WeightsOption, refuse_elsewhere, serving
from coevo_transformers.loading import DTypeOption, choose_device, choose_dtype, load

_PROBE_TOKENS = 12


@dataclass(frozen=True, slots=True)
class Settings:
    """The engine's options; see `TransformersEngine`."""

    model: str
    dtype: DTypeOption
    device: str
    threads: int
    rows: int
    cache_tokens: int
    attention: str
    context: int
    chat_options: Mapping[str, Json]
    date: datetime.date | None
    scales: tuple[tuple[str, float], ...]
    master: Literal["host", "disk", "device"]
    weights: WeightsOption
    canary: bool


class Session:
    """Everything but the thread.

    Attributes:
        folder: The checkpoint.
        weights, prompts, decoder, completer: The parts.
        canary: What was proved at start, None if it was not asked for.
    """

    def __init__(self, settings: Settings) -> None:
        """Loads the model; errors as in `TransformersEngine`."""
        found = resolve(settings.model)
        self.folder = found if isinstance(found, Path) else pull(found)
        self._settings = settings
        if settings.threads:
            torch.set_num_threads(settings.threads)
            numba.set_num_threads(min(settings.threads, int(numba.config.NUMBA_NUM_THREADS)))  # type: ignore[attr-defined]
        self.device = choose_device(settings.device)
        self.exact = settings.weights == "exact"
        if not self.exact:
            refuse_elsewhere(settings.weights, self.device, settings.master)
        self.dtype = choose_dtype(settings.dtype, self.device)
        tokenizer = tokenizer_of(self.folder)
        self.prompts = Prompts(tokenizer, settings.chat_options, settings.date)  # before anything slow: it may refuse
        loaded = load(self.folder, tokenizer, self.prompts.sample(), self.dtype, self.device, settings.attention)
        selection = with_scales(select(self.folder, loaded.tensors), settings.scales)
        self.weights = serving(settings.weights)(selection, self.folder, loaded.parameters, where=settings.master)
        self._tokenizer, self._eos = loaded.tokenizer, loaded.eos_ids
        self.decoder = Decoder(loaded.model, loaded.pad_id)
        context = _context(settings.context, loaded.context_tokens)
        limits = Limits(context, settings.rows, settings.cache_tokens)
        self.completer = Completer(self.decoder, self.prompts, loaded.tokenizer, loaded.eos_ids, limits)
        self._vocabulary = int(loaded.model.get_input_embeddings().weight.shape[0])
        # In-place weights cannot pass it: that their centre does not come back is what they are here to show.
        proved = settings.canary and self.exact
        self.canary: Canary | None = run_canary(_Inspection(self), self.weights.master) if proved else None

    @property
    def repeats(self) -> bool:
        """Whether equal questions get equal answers, as far as the canary saw."""
        if not self.exact:
            return False  # the weights depend on every member that was served before
        return self.canary.repeats if self.canary else self.device.type == "cpu"

    def policy_id(self, perturbation: Perturbation | None) -> str:
        """The name of the weights that a perturbation serves now."""
        return self.weights.policy_id(perturbation)

    def logits(self) -> dict[str, NDArray[np.float32]]:
        """Logits (V,) for a fixed prompt, after it and one token later, from an empty cache."""
        ids = [(7 * i + 3) % self._vocabulary for i in range(_PROBE_TOKENS)]
        return {name: values.float().cpu().numpy() for name, values in self.decoder.probe(ids).items()}

    def library_chat(self, conversations: Sequence[Sequence[Mapping[str, str]]], sampling: Sampling) -> int:
        """`generate` on conversations, in padded batches of as many rows; returns how many tokens were generated."""
        tokenizer, model = self._tokenizer, self.decoder.model
        tokens = 0
        for start in range(0, len(conversations), self._settings.rows):
            texts = [
                tokenizer.apply_chat_template([dict(m) for m in each], tokenize=False, add_generation_prompt=True)
                for each in conversations[start : start + self._settings.rows]
            ]
            asked = tokenizer(
                texts, return_tensors="pt", padding=True, padding_side="left", add_special_tokens=False
            ).to(self.device)
            with torch.inference_mode():
                out = model.generate(
                    **asked, do_sample=True, temperature=sampling.temperature, top_p=sampling.top_p, top_k=0,
                    max_new_tokens=sampling.max_new_tokens, pad_token_id=self.decoder.pad_id,
                )  # fmt: skip
            said = out[:, asked["input_ids"].shape[1] :]
            ends = torch.isin(said, torch.tensor(sorted(self._eos), device=said.device)).int()
            tokens += int((ends.cumsum(-1) - ends == 0).sum())  # up to and with the first end of turn
        return tokens

    def describe(self) -> dict[str, str]:
        """For the start line."""
        where = self._settings.master
        beside = " and device" if where == "device" else ""
        size = f"{self.weights.master.nbytes / 1e9:.2f} GB"
        told = {
            "model": str(self.folder),
            "parameters": f"{self.weights.selection.size:,}",
            "device": str(self.device),
            "dtype": self.dtype,
            "threads": str(torch.get_num_threads()),
            "master": f"{'host' if where == 'device' else where}{beside}, {size}",
            **self.prompts.describe(),
        }
        if self.weights.note:
            told["weights"] = self.weights.note
        if self.canary:
            told["canary"] = f"{self.canary.read_back} tensors proved in {self.canary.seconds:.1f} s"
        return told

    def record(self) -> dict[str, Json]:
        """For run.json."""
        return {
            "base": str(self.folder),
            "selection": self.weights.selection.to_json(),
            "dtype": self.dtype,
            "weights": self._settings.weights,
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "processor": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        }


def _context(asked: int, own: int | None) -> int | None:
    if asked and own and asked > own:
        raise UserError(f"context {asked} is longer than the model's {own} tokens")
    return asked or own


class _Inspection:
    """The session as the canary sees it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def serve(self, perturbation: Perturbation | None) -> None:
        self._session.weights.serve(perturbation)

    def read_served(self, name: str) -> Stored:
        return self._session.weights.read(name)

    def serve_alone(self, name: str, seed: int, sigma: float) -> None:
        raise NotImplementedError("every tensor of this engine can be read back")

    def logits(self) -> dict[str, NDArray[Any]]:
        return self._session.logits()
