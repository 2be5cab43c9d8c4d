"""A small program search to run the loop on: programs are numbers, and the engine counts what it is asked."""

from contextlib import asynccontextmanager
from typing import ClassVar

import fakes
import numpy as np

import coevo
from coevo.records import EpisodeResult, Example


def words(request):
    """Tokens of a prompt: its words."""
    return sum(len(message["content"].split()) for message in request.messages)


class CountingEngine(fakes.NumberEngine):
    """Says numbers, now and then what is none; fails calls by a seeded coin, after all the work that they can make.

    It counts what it was asked and what that cost, answered or not.
    """

    made: ClassVar[list["CountingEngine"]] = []

    def __init__(self, model: str = "", *, fails: float = 0.0, seed: int = 0, rolling: bool = False, always: str = ""):
        super().__init__(model)
        self.always = always
        self.capabilities = coevo.Capabilities(adapts=True, deterministic=not rolling, rolling=rolling)
        self.fails, self.coin = fails, np.random.default_rng(seed)
        self.tokens, self.failed = 0, 0
        CountingEngine.made.append(self)

    def count_tokens(self, request):
        return words(request)

    @asynccontextmanager
    async def lease(self, perturbation):
        yield CountingPolicy(self, self.theta, "any")


class CountingPolicy(fakes.NumberPolicy):
    async def complete(self, requests):
        self.engine.calls += len(requests)
        if self.engine.coin.random() < self.engine.fails:
            self.engine.failed += len(requests)
            self.engine.tokens += sum(words(request) + request.sampling.max_new_tokens for request in requests)
            raise RuntimeError("the engine hiccuped")
        return [self._one(request) for request in requests]

    def _one(self, request):
        value = np.random.default_rng(request.seed).normal()
        text = self.engine.always or (f"{value:.6f}" if value > -0.3 else f"broken {value:.3f}")
        length = request.seed % request.sampling.max_new_tokens + 1
        self.engine.tokens += words(request) + length
        return coevo.Completion(text, (1,) * words(request), (3,) * length, "stop")


class TwiceEpisode:
    """Asks once, and again where the first answer is no number: an episode that needs not all of its calls."""

    def __init__(self, context, calls):
        self.prompt, self.left, self.answer = context.components.get("prompt", "?"), calls, None

    def requests(self):
        if self.left == 0 or (self.answer and not self.answer.startswith("broken")):
            return []
        return [coevo.Request(({"role": "user", "content": self.prompt},))]

    def step(self, completions):
        self.left -= 1
        self.answer = completions[0].text

    def result(self):
        if self.answer.startswith("broken"):
            return EpisodeResult("syntax", artifacts={"answer": self.answer, "message": "no number"})
        value = float(self.answer)
        return EpisodeResult("ok", -value, {"objective": value}, {"answer": self.answer, "code_key": self.answer})


class NumbersTask:
    """A program search whose programs are numbers."""

    def __init__(self, *, calls: int = 1):
        self.calls = calls

    def brief(self):
        return coevo.Brief(
            "numbers-task", "Numbers", "Say a small number.", hole="expression", signature="x =", prefill="x =",
            direction="minimize", components={"prompt": "Say a number."}, max_new_tokens=4, max_calls=self.calls,
        )  # fmt: skip

    def examples(self, split):
        if split != "train":
            raise ValueError(f"no split {split!r}")
        return [Example("train")]

    def episode(self, example, context):
        return TwiceEpisode(context, self.calls)


class Plugin:
    @coevo.hookimpl
    def register_tasks(self, tasks):
        tasks.register("numbers-task", NumbersTask)

    @coevo.hookimpl
    def register_engines(self, engines):
        engines.register("counting", CountingEngine)
