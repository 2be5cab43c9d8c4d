"""What coevo adds to vLLM's worker: called in every worker by `collective_rpc`, with plain numbers and texts only."""

from __future__ import annotations

import json
import logging
from typing import Any

from coevo.records import Json
from coevo_vllm.streaming import Streaming
from coevo_vllm.usual import Usual

for _noisy in ("layerwise", "inplace"):
    # Every reload says of modules without weights of their own that they have none, and of a tied head too.
    logging.getLogger(f"vllm.model_executor.model_loader.reload.{_noisy}").setLevel(logging.ERROR)


class WeightsExtension:
    """Methods that vLLM mixes into its worker class; `worker_extension_cls` names it."""

    _coevo: Streaming
    _coevo_usual: Usual

    def coevo_open(self, selection: str, master: str, route: str) -> dict[str, Json]:
        """Attach to the node's master.

        Args:
            selection: The selection as JSON.
            master: The file that the master is shared as.
            route: `host`, `device` or `auto`: where members are made.

        Returns:
            `route` and its `seconds` by route where they were measured, `device`, `threads` and `rank`.
        """
        self._coevo = Streaming(self, json.loads(selection), master, route)
        return self._coevo.describe()

    def coevo_serve(self, seed: int | None, sigma: float) -> float:
        """Serve a member, or the centre for None; returns the seconds that it took."""
        return self._coevo.serve(seed, sigma)

    def coevo_serve_alone(self, group: list[str], name: str, seed: int, sigma: float, spared: list[int]) -> None:
        """Load one group of tensors again, with one of them perturbed but for its rows `spared`; name "" for none."""
        self._coevo.serve_alone(group, name, seed, sigma, spared)

    def coevo_trace(self, groups: list[list[str]]) -> dict[str, Json]:
        """Find out where the tensors lie; what is served is lost. See `Streaming.trace`."""
        return self._coevo.trace(groups)

    def coevo_read(self, name: str) -> list[list[Any]]:
        """What this worker holds of a tensor: [format, starts, lengths, bytes] for each parameter with a part of it."""
        return self._coevo.read(name)

    def coevo_usual(self, seed: int, sigma: float) -> None:
        """A member's cost in the way of published scripts; see `coevo_vllm.usual`."""
        if not hasattr(self, "_coevo_usual"):
            self._coevo_usual = Usual(self._coevo)
        self._coevo_usual.member(seed, sigma)

    def coevo_listen(self, listening: bool) -> None:
        """Whether to keep a digest of the logits of every forward from now on."""
        self._coevo.listen(listening)

    def coevo_heard(self) -> list[str]:
        """The digests since the last call, in order; empty in a worker that has no logits."""
        return self._coevo.heard()
