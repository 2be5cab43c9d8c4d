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
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from coevo.errors import CheckFailedError, UserError
from coevo.host.discovery import load
from coevo.interfaces import Engine
from coevo.records import Completion, Json, Perturbation, Request, Sampling

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
    if min(rounds, members) < 1:
        raise UserError(f"rounds {rounds} and members {members} must be 1 or more")
    made = load().registries().engines.create(engine, dict(options or {}), model=model)
    try:
        return asyncio.run(_measure(made, rounds, members))
    finally:
        getattr(made, "close", lambda: None)()


async def _measure(engine: Any, rounds: int, members: int) -> dict[str, Json]:
    record = engine.record()
    own = getattr(engine, "usual_member", None)
    usual = _Usual(Path(record["base"]), record["dtype"], record["device"])
    slow_member: Callable[[int], None] = usual.member if own is None else lambda seed: own(seed, SIGMA)

    async def ours(seed: int) -> None:
        async with engine.lease(Perturbation(seed, SIGMA)):
            usual.wait()

    await ours(0)
    slow_member(0)
    pairs: list[tuple[float, float]] = []
    for seed in range(1, rounds + 1):
        slow = _seconds(lambda seed=seed: slow_member(seed))
        if own is not None:
            usual.member(seed)  # for the drift alone
        begin = perf_counter()
        await ours(seed)
        pairs.append((slow, perf_counter() - begin))
    drifted = usual.drifted()
    usual.free()
    member_seconds = await _centre_comes_back(engine, members, ours)
    ratios = [slow / fast for slow, fast in pairs]
    return {
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ours_seconds": median(fast for _, fast in pairs),
        "reference_seconds": median(slow for slow, _ in pairs),
        "drifted": drifted,
        "members": members,
        "member_seconds": member_seconds,
        "parameters": sum(_size(tensor["shape"]) for tensor in record["selection"]["tensors"]),
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
        return getattr(engine, "served_digest")()  # noqa: B009 - optional in the Protocol
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


def _seconds(run: Callable[[], None]) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin


def _size(shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
