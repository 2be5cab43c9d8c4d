"""`coevo bench serve`: what it costs to make one member of the population ready to generate.

Usual (Qiu et al., "Evolution Strategies at Scale", arXiv 2509.24372): the served weights are perturbed in
place, parameter by parameter, with `torch.randn` of a seeded generator in the weights' own format, and after
the member's rollouts the same noise is drawn again and subtracted. Ours: the engine writes the served weights
from the fp32 master once. Rounds alternate between the two, because a busy machine must slow both.

Afterwards many members are served and then the centre again: its weights, read back, and its answers must be
the bits that they were.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol

from coevo.errors import CheckFailedError, UserError
from coevo.interfaces import Engine
from coevo.optional import ServedDigest, offers
from coevo.records import Completion, Json, Perturbation, Request, Sampling
from coevo.tools.bench.rounds import in_turn, require, seconds, spread, working

SIGMA = 1e-3


def bench_serve(
    model: str = "smollm2-135m",
    rounds: int = 7,
    members: int = 1000,
    engine: str = "transformers",
    options: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """Times both ways on a model and checks that the centre comes back.

    Args:
        model: an alias, a folder or a hub id.
        rounds: interleaved rounds, after one of each that is not counted.
        members: how many members are served before the centre is looked at again.
        engine: of coevo; one that offers `usual_member` does the usual way itself, where its workers are.
        options: of the engine.

    Returns:
        `ratio`: reference over ours, how many times faster a member is ready, the median over the rounds;
        `ratio_min`, `ratio_max`; `ours_seconds` and `reference_seconds`, medians per member;
        `members`, `member_seconds` (mean over them), `drifted` (the share of weights that differ from the
        centre after as many rounds of the usual way as were timed), `parameters`, `dtype` and `device`.

    Raises:
        UserError: the model cannot be used, or a number is below 1.
        CheckFailedError: the centre did not come back.
    """
    require(rounds=rounds, members=members)
    with working(engine, model, options) as made, asyncio.Runner() as runner:
        return _measure(made, rounds, members, runner)


class UsualMember(Protocol):
    """Optional, of an engine: it makes a member the usual way itself, where its workers are."""

    def usual_member(self, seed: int, sigma: float) -> None:
        """Perturb the served weights in place and restore them."""
        ...


def _measure(engine: Any, rounds: int, members: int, runner: asyncio.Runner) -> dict[str, Json]:
    record = engine.record()
    usual = _Usual(Path(record["base"]), record["dtype"], record["device"])

    async def lease(seed: int) -> None:
        async with engine.lease(Perturbation(seed, SIGMA)):
            usual.wait()

    def reference(seed: int) -> float:
        if not offers(engine, UsualMember):
            return seconds(lambda: usual.member(seed))
        usual.member(seed)  # for the drift alone
        return seconds(lambda: engine.usual_member(seed, SIGMA))

    fast, slow = in_turn(lambda seed: seconds(lambda: runner.run(lease(seed))), reference, rounds)
    drifted = usual.drifted()
    usual.free()
    member_seconds = runner.run(_centre_comes_back(engine, members, lease))
    return {
        **spread(slow, fast),
        "ours_seconds": median(fast),
        "reference_seconds": median(slow),
        "drifted": drifted,
        "members": members,
        "member_seconds": member_seconds,
        "parameters": sum(prod(tensor["shape"]) for tensor in record["selection"]["tensors"]),
        "dtype": record["dtype"],
        "device": record["device"],
    }


async def _centre_comes_back(engine: Any, members: int, serve: Callable[[int], Any]) -> float:
    """Serves the centre, members, and the centre; returns the mean seconds a member took."""
    before = await _look(engine)
    begin = perf_counter()
    for seed in range(1000, 1000 + members):
        await serve(seed)
    seconds = (perf_counter() - begin) / members
    after = await _look(engine)
    if before[0] != after[0]:
        raise CheckFailedError(f"after {members} members the centre's weights are others: {before[0]}, then {after[0]}")
    if before[1] != after[1]:
        raise CheckFailedError(f"after {members} members the centre's weights are the same and its answers are not")
    return seconds


async def _look(engine: Engine) -> tuple[str, list[Completion]]:
    """The digest of the centre as it is served, and its answers with log-probabilities."""
    requests = [
        Request(
            ({"role": "user", "content": text},), sampling=Sampling(temperature=0.0, max_new_tokens=8), logprobs=True
        )
        for text in ("Say hello.", "Name a colour.")
    ]
    async with engine.lease(None) as policy:
        completions = await policy.complete(requests)
        return _readable(engine), completions


def _readable(engine: Engine) -> str:
    """The digest of what generates; empty where it is packed and only the answers can tell."""
    try:
        return engine.served_digest() if offers(engine, ServedDigest) else ""
    except UserError:
        return ""


class _Usual:
    """Perturb and restore in place, on the checkpoint's tensors in the engine's format, on its device."""

    def __init__(self, folder: Path, dtype: str, device: str) -> None:
        self._torch: Any = importlib.import_module("torch")
        stored = importlib.import_module("safetensors.torch")
        self._weights: list[Any] = [
            tensor.to(device, getattr(self._torch, dtype))
            for file in sorted(folder.glob("*.safetensors"))
            for tensor in stored.load_file(file).values()
            if tensor.is_floating_point()
        ]
        self._first = [tensor.clone() for tensor in self._weights]
        self._generator = self._torch.Generator(device)
        self._device = device

    def member(self, seed: int) -> None:
        """Everything that a member costs: its noise is drawn and added, and drawn and subtracted."""
        self._add(seed, SIGMA)
        self._add(seed, -SIGMA)
        self.wait()

    def _add(self, seed: int, sigma: float) -> None:
        with self._torch.inference_mode():
            for tensor in self._weights:
                self._generator.manual_seed(seed)
                noise = self._torch.randn(
                    tensor.shape, generator=self._generator, dtype=tensor.dtype, device=self._device
                )
                tensor.add_(sigma * noise)

    def wait(self) -> None:
        """Until the device has done what it was told."""
        if self._device.startswith("cuda"):
            self._torch.cuda.synchronize()

    def drifted(self) -> float:
        """Share of the weights that are no longer what they were."""
        changed = sum(int((a != b).sum()) for a, b in zip(self._weights, self._first, strict=True))
        return changed / max(1, sum(tensor.numel() for tensor in self._first))

    def free(self) -> None:
        """Give the memory back."""
        self._weights, self._first = [], []
