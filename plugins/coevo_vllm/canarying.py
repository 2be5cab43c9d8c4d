"""vLLM as the canary sees it, and what it proved before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from coevo.engines.canary import Canary, run_canary
from coevo.errors import CheckFailedError
from coevo.files import write_atomic
from coevo.models.catalogue import cache_folder
from coevo.records import Json, Perturbation
from coevo.weights.dtypes import Stored
from coevo_vllm.streaming import groups_of
from coevo_vllm.weights import Rpc, VllmWeights

PROMPT_TOKENS = 12
CHUNK = 1 << 27
"""Tensors of so many elements together are traced at once: what is read of them takes 16 times that in bytes."""


class Inspection:
    """The engine under the canary's eyes: logits are digests of what `compute_logits` gives in the workers."""

    def __init__(
        self,
        weights: VllmWeights,
        rpc: Rpc,
        generate: Callable[[Sequence[int], int], None],
        vocabulary: int,
        context: int = PROMPT_TOKENS + 2,
    ) -> None:
        """Takes the parts.

        Args:
            weights: What is served.
            rpc: Calls the workers.
            generate: Prompt ids and a number of tokens → generated greedily, from an empty cache.
            vocabulary: How many tokens there are.
            context: Longest prompt plus answer.
        """
        self._weights, self._rpc, self._generate = weights, rpc, generate
        self._prompt = [(7 * i + 3) % vocabulary for i in range(max(1, min(PROMPT_TOKENS, context - 2)))]
        self._groups = {name: group for group in groups_of(weights.selection.tensors) for name in group}
        self._whole: set[str] = set()  # first names of groups that were loaded again and changed nothing
        self._last: list[str] | None = None
        self._centre: NDArray[Any] | None = None

    def serve(self, perturbation: Perturbation | None) -> None:
        """Serve a member, or the centre."""
        self._weights.serve(perturbation)

    def read_served(self, name: str) -> Stored | None:
        """The tensor that generates; None where it is packed."""
        return self._weights.read(name)

    def serve_alone(self, name: str, seed: int, sigma: float) -> None:
        """The centre with one tensor perturbed."""
        self._require_whole(name)
        self._weights.serve_alone(self._groups[name], name, seed, sigma)

    def serve_unseen(self, name: str, seed: int, sigma: float) -> None:
        """The centre with one tensor perturbed but for the rows of the prompt's tokens."""
        self._require_whole(name)
        self._weights.serve_alone(self._groups[name], name, seed, sigma, self._prompt)

    def _require_whole(self, name: str) -> None:
        """A group that is loaded again must give the centre: else what is seen is its missing parts, not `name`."""
        group = self._groups[name]
        if self._last is None:
            self._weights.serve(None)
        elif self._last is not group:
            self._weights.serve_alone(self._last, "", 0, 0.0)  # what was perturbed before is the centre again
        self._last = group
        if group[0] in self._whole:
            return
        self._weights.serve_alone(group, "", 0, 0.0)
        if self._centre is not None and not np.array_equal(self._centre, self.prefill()):
            raise CheckFailedError(
                f"canary: vLLM does not give the centre's answers again after {len(group)} tensors of one layer, such "
                f"as {group[0]!r}, were loaded again; it fuses tensors of several layers, which coevo does not know of"
            )
        self._whole.add(group[0])

    def logits(self) -> Mapping[str, NDArray[Any]]:
        """Digests of the logits after the prompt and one token later."""
        heard = self._ask(2)
        self._centre = heard[0] if self._centre is None else self._centre
        return {"prefill": heard[0], "decode": heard[1]}

    def prefill(self) -> NDArray[Any]:
        """A digest of the logits after the prompt."""
        return self._ask(1)[0]

    def _ask(self, tokens: int) -> list[NDArray[Any]]:
        self._rpc("coevo_heard")
        self._generate(self._prompt, tokens)
        workers = cast("list[list[str]]", self._rpc("coevo_heard"))
        heard = next((digests for digests in workers if digests), list[str]())
        if len(heard) < tokens:
            raise CheckFailedError(
                f"canary: vLLM computed logits {len(heard)} times for {tokens} tokens; it does not go through the "
                "model's compute_logits, and nothing can be proved"
            )
        return [np.frombuffer(bytes.fromhex(digest), dtype=np.uint8) for digest in heard[:tokens]]


def prove(weights: VllmWeights, inspection: Inspection, rpc: Rpc, facts: Mapping[str, Json]) -> Canary:
    """Find out what can be read, run the canary, and keep what it proved of the rest.

    Args:
        weights: What is served.
        inspection: The engine under its eyes.
        rpc: Calls the workers.
        facts: What a proof holds for: versions, format, parallelism; with the base's digest.
    """
    weights.trace(_chunks(weights))
    kept = _kept(weights, facts)
    rpc("coevo_listen", True)
    try:
        canary = run_canary(inspection, weights.master, proved=_read(kept), copied=weights.copied)
    finally:
        rpc("coevo_listen", False)
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(kept, json.dumps({"facts": dict(facts), "proved": list(canary.proved)}, indent=1))
    return canary


def _chunks(weights: VllmWeights) -> list[list[str]]:
    """Groups put together until there is enough for one round of tracing."""
    sizes = {spec.name: spec.size for spec in weights.selection.tensors}
    chunks: list[list[str]] = []
    room = 0
    for group in groups_of(weights.selection.tensors):
        size = sum(sizes[name] for name in group)
        if not chunks or room < size:
            chunks.append([])
            room = CHUNK
        chunks[-1] += group
        room -= size
    return chunks


def _kept(weights: VllmWeights, facts: Mapping[str, Json]) -> Path:
    named = json.dumps([weights.digest(), dict(facts)], sort_keys=True)
    return cache_folder() / "canary" / f"{hashlib.blake2b(named.encode(), digest_size=12).hexdigest()}.json"


def _read(path: Path) -> frozenset[str]:
    """What was proved before; a file that is missing or torn has proved nothing."""
    try:
        return frozenset(str(name) for name in json.loads(path.read_text())["proved"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()
