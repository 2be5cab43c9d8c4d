"""`coevo bench rollout` and `coevo bench episodes`: what the way from a plan to saved rollouts costs.

`rollout`: tokens a second through all of coevo's path (plan, lease, prompts, sampling seeds, scoring, records on disk)
against the library's own chat call on the same conversations. `episodes`: episodes of several steps whose lengths
vary, each at its own pace, against the same engine with all of them in step. Rounds alternate, because a busy
machine must slow both.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from coevo.errors import UserError
from coevo.host.discovery import load
from coevo.interfaces import Engine, Perturbation, Policy
from coevo.loop.collector import Collector
from coevo.loop.plan import Plan, PlanSettings, Prepared
from coevo.records import Batch, Context, Json, Rollout, Sampling
from coevo.runs.chunks import ChunkFile
from coevo.tools.bench.asking import Talks, conversation, varied


def bench_rollout(
    engine: str = "transformers",
    model: str = "smollm2-135m",
    rounds: int = 5,
    episodes: int = 64,
    tokens: int = 48,
    options: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """Times episodes of one answer through coevo and through the engine's library alone.

    Args:
        engine: of coevo; it must offer `library_chat`.
        model: an alias, a folder or a hub id.
        rounds: interleaved rounds, after one of each that is not counted.
        episodes: how many.
        tokens: of an answer at most.
        options: of the engine.

    Returns:
        `ratio`: tokens a second of coevo over those of the library, the median over the rounds; `ratio_min`,
        `ratio_max`; `ours` and `reference`, tokens a second, medians; `episodes`, `tokens` of one of our rounds.

    Raises:
        UserError: the engine has no library to be compared with, or a number is below 1.
    """
    _require(rounds=rounds, episodes=episodes, tokens=tokens)
    made = _make(engine, model, options)
    try:
        library: Callable[..., int] | None = getattr(made, "library_chat", None)
        if library is None:
            raise UserError(f"engine {engine!r} has no chat call of its library to be compared with")
        task = Talks([(tokens,)] * episodes)
        chats = [[dict(message) for message in conversation(number)] for number in range(episodes)]
        sampling = Sampling(temperature=1.0, max_new_tokens=tokens)

        def usual(number: int) -> float:
            started = perf_counter()
            return library(chats, sampling) / (perf_counter() - started)

        said: list[int] = []

        def ours(number: int) -> float:
            started = perf_counter()
            count = _collect(made, task, number)
            said.append(count)
            return count / (perf_counter() - started)

        found = _interleaved(ours, usual, rounds)
    finally:
        _close(made)
    return {**found, "episodes": episodes, "tokens": median(said)}


def bench_episodes(
    engine: str = "vllm",
    model: str = "smollm2-135m",
    rounds: int = 3,
    episodes: int = 64,
    steps: int = 6,
    tokens: int = 40,
    spread: int = 10,
    options: Mapping[str, Json] | None = None,
) -> dict[str, Json]:
    """Times episodes of varied lengths, each at its own pace, against all of them in step.

    Args:
        engine: of coevo, one that is rolling.
        model: an alias, a folder or a hub id.
        rounds: interleaved rounds, after one of each that is not counted.
        episodes: how many.
        steps: answers of the longest.
        tokens: of the longest answer.
        spread: longest over shortest, of both.
        options: of the engine.

    Returns:
        `ratio`: seconds in step over seconds at their own pace, the median; `ratio_min`, `ratio_max`;
        `ours_seconds` and `reference_seconds`, medians; `episodes`, `answers`, and the tokens of a round either way.

    Raises:
        UserError: the engine is not rolling, or a number is below 1.
    """
    _require(rounds=rounds, episodes=episodes, steps=steps, tokens=tokens, spread=spread)
    made = _make(engine, model, options)
    try:
        if not made.capabilities.rolling:
            raise UserError(f"engine {engine!r} answers in step here; set {engine}.rolling = true to compare")
        task = Talks(varied(episodes, steps, tokens, spread))
        counts: dict[str, list[int]] = {"rolling": [], "in_step": []}

        def timed(name: str, asked: Any) -> Callable[[int], float]:
            def run(number: int) -> float:
                started = perf_counter()
                counts[name].append(_collect(asked, task, number))
                return 1.0 / (perf_counter() - started)

            return run

        found = _interleaved(timed("rolling", made), timed("in_step", _InStep(made)), rounds)
    finally:
        _close(made)
    return {
        **{name: found[name] for name in ("ratio", "ratio_min", "ratio_max")},
        "ours_seconds": 1.0 / float(found["ours"]),
        "reference_seconds": 1.0 / float(found["reference"]),
        "episodes": episodes,
        "answers": sum(len(lengths) for lengths in task.lengths),
        "tokens_ours": median(counts["rolling"]),
        "tokens_reference": median(counts["in_step"]),
    }


class _InStep:
    """An engine whose episodes are held in step, chunk after chunk."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.capabilities = replace(engine.capabilities, rolling=False)

    def lease(self, perturbation: Perturbation | None) -> AbstractAsyncContextManager[Policy]:
        return self._engine.lease(perturbation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def _collect(engine: Any, task: Talks, number: int) -> int:
    """One batch at the centre, saved as a run saves it; returns the tokens that were generated."""
    batch = Batch((Context(),), adapt=False)
    examples = task.examples("train")
    settings = PlanSettings(number, 0, 0)
    prepared = Prepared(batch, (), examples, settings, Plan(batch, examples, 0, settings))
    tokens = 0
    with tempfile.TemporaryDirectory(prefix="coevo-bench-") as folder, ThreadPoolExecutor(4) as scorers:
        collector = Collector(engine, task, Sampling(), scorers)
        with ChunkFile(Path(folder) / "rollouts") as file:

            def finished(rollouts: Sequence[Rollout]) -> None:
                nonlocal tokens
                file.append(rollouts)
                tokens += sum(rollout.completion_tokens for rollout in rollouts)

            asyncio.run(collector.collect(prepared, prepared.chunks, finished))
    return tokens


def _interleaved(ours: Callable[[int], float], usual: Callable[[int], float], rounds: int) -> dict[str, Json]:
    """Rates of both in turn; which goes first alternates too."""
    ours(0)
    usual(0)
    pairs: list[tuple[float, float]] = []
    for number in range(1, rounds + 1):
        if number % 2:
            fast = ours(number)
            pairs.append((fast, usual(number)))
        else:
            slow = usual(number)
            pairs.append((ours(number), slow))
    ratios = [fast / slow for fast, slow in pairs]
    return {
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "ours": median(fast for fast, _ in pairs),
        "reference": median(slow for _, slow in pairs),
    }


def _make(engine: str, model: str, options: Mapping[str, Json] | None) -> Any:
    return load().registries().engines.create(engine, dict(options or {}), model=model)


def _close(engine: Any) -> None:
    getattr(engine, "close", lambda: None)()


def _require(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise UserError(f"{name} got {value}: it should be 1 or more")
