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
from typing import Any, Protocol

from coevo.errors import UserError
from coevo.interfaces import Engine, Perturbation, Policy
from coevo.loop.collector import Collector
from coevo.loop.plan import Plan, PlanSettings, Prepared
from coevo.optional import offers
from coevo.records import Batch, Context, Json, Rollout, Sampling
from coevo.runs.chunks import ChunkFile
from coevo.tools.bench.asking import Talks, conversation, varied
from coevo.tools.bench.rounds import in_turn, require, seconds, spread, working


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
    require(rounds=rounds, episodes=episodes, tokens=tokens)
    said: list[int] = []
    with working(engine, model, options) as made:
        if not offers(made, LibraryChat):
            raise UserError(f"engine {engine!r} has no chat call of its library to be compared with")
        task = Talks([(tokens,)] * episodes)
        chats = [[dict(message) for message in conversation(number)] for number in range(episodes)]
        sampling = Sampling(temperature=1.0, max_new_tokens=tokens)

        def usual(number: int) -> float:
            started = perf_counter()
            return made.library_chat(chats, sampling) / (perf_counter() - started)

        def ours(number: int) -> float:
            started = perf_counter()
            said.append(_collect(made, task, number))
            return said[-1] / (perf_counter() - started)

        fast, slow = in_turn(ours, usual, rounds)
    rates = {"ours": median(fast), "reference": median(slow)}
    return {**spread(fast, slow), **rates, "episodes": episodes, "tokens": median(said)}


def bench_episodes(
    engine: str = "vllm",
    model: str = "smollm2-135m",
    rounds: int = 3,
    episodes: int = 64,
    steps: int = 6,
    tokens: int = 40,
    lengths: int = 10,
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
        lengths: longest over shortest, of both.
        options: of the engine.

    Returns:
        `ratio`: seconds in step over seconds at their own pace, the median; `ratio_min`, `ratio_max`;
        `ours_seconds` and `reference_seconds`, medians; `episodes`, `answers`, and the tokens of a round either way.

    Raises:
        UserError: the engine is not rolling, or a number is below 1.
    """
    require(rounds=rounds, episodes=episodes, steps=steps, tokens=tokens, lengths=lengths)
    counts: dict[str, list[int]] = {"rolling": [], "in_step": []}
    with working(engine, model, options) as made:
        if not made.capabilities.rolling:
            raise UserError(f"engine {engine!r} answers in step here; set {engine}.rolling = true to compare")
        task = Talks(varied(episodes, steps, tokens, lengths))

        def timed(name: str, asked: Any) -> Callable[[int], float]:
            return lambda number: seconds(lambda: counts[name].append(_collect(asked, task, number)))

        fast, slow = in_turn(timed("rolling", made), timed("in_step", _InStep(made)), rounds)
    return {
        **spread(slow, fast),
        "ours_seconds": median(fast),
        "reference_seconds": median(slow),
        "episodes": episodes,
        "answers": sum(len(lengths) for lengths in task.lengths),
        "tokens_ours": median(counts["rolling"]),
        "tokens_reference": median(counts["in_step"]),
    }


class LibraryChat(Protocol):
    """Optional, of an engine: the chat call of its library, to be compared with."""

    def library_chat(self, conversations: Sequence[Sequence[Mapping[str, str]]], sampling: Sampling) -> int:
        """Answer all conversations; returns the tokens that were generated."""
        ...


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
