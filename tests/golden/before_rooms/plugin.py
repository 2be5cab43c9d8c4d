"""Small real things to run the loop on: an engine with three weights and a task that asks for numbers.

They implement the Protocols like a stranger's plugin would. Nothing is mocked: the engine's weights move,
its answers depend on them, and its digest is a digest.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

import coevo
from coevo.records import Batch, Context, EpisodeResult, Example, SeedsUpdate

TARGET = (1.0, -2.0, 0.5)


class NumberPolicy:
    def __init__(self, engine, theta, name):
        self.engine, self.theta, self.id = engine, theta, name

    async def complete(self, requests):
        await asyncio.sleep(self.engine.delay)
        self.engine.calls += len(requests)
        if self.engine.fail_next:
            self.engine.fail_next -= 1
            raise RuntimeError("the engine hiccuped")
        return [self._one(request) for request in requests]

    def _one(self, request):
        index = int(request.messages[-1]["content"].split()[-1])
        noise = np.random.default_rng(request.seed).normal(0.0, self.engine.spread)
        text = repr(float(self.theta[index] + noise))
        return coevo.Completion(text, (1, 2, index), (3, 4), "stop")


class NumberEngine:
    """An engine with a vector of three float32 weights; "serves" by adding noise to it."""

    def __init__(self, model: str = "", *, spread: float = 0.1, delay: float = 0.0, adapts: bool = True):
        self.capabilities = coevo.Capabilities(adapts=adapts, slots=1)
        self.theta = np.zeros(3, np.float32)
        self.spread, self.delay = spread, delay
        self.calls, self.fail_next, self.closed = 0, 0, False

    def noise(self, seed):
        return np.random.default_rng(seed).normal(size=3).astype(np.float32)

    @asynccontextmanager
    async def lease(self, perturbation):
        theta, name = self.theta, f"{self.digest()[:8]}-centre"
        if perturbation is not None:
            theta = theta + np.float32(perturbation.sigma) * self.noise(perturbation.seed)
            name = f"{self.digest()[:8]}-{perturbation.seed:016x}"
        yield NumberPolicy(self, theta, name)

    def apply(self, update):
        assert isinstance(update, SeedsUpdate)
        for seed, coefficient in update.terms:
            self.theta = self.theta + np.float32(coefficient) * self.noise(seed)

    def digest(self):
        return hashlib.sha256(self.theta.tobytes()).hexdigest()

    def moved(self, perturbation):
        return 1.0 if perturbation.sigma else 0.0

    def count_tokens(self, request):
        return 3

    def describe(self):
        return {"device": "numpy", "dtype": "float32"}

    def export(self, path: Path, dtype=None):
        np.save(path, self.theta)

    def close(self):
        self.closed = True


class AimEpisode:
    def __init__(self, example, context):
        self.index, self.context, self.answer = int(example.id), context, None

    def requests(self):
        if self.answer is not None:
            return []
        text = self.context.components.get("prompt", "say number")
        return [coevo.Request(({"role": "user", "content": f"{text} {self.index}"},))]

    def step(self, completions):
        self.answer = completions[0].text

    def result(self):
        value = float(self.answer)
        if value > 50:
            return EpisodeResult("exception", artifacts={"message": "too large"})
        distance = abs(value - TARGET[self.index])
        return EpisodeResult("ok", -distance, {"objective": distance}, {"answer": self.answer})


class AimTask:
    """Say the target numbers; the objective is the distance, to be minimised."""

    def __init__(self):
        self.closed = False

    def brief(self):
        references = (
            coevo.Reference("zero", "train", 3.5 / 3, baseline=True),
            coevo.Reference("exact", "train", 0.0, proved=True),
        )
        return coevo.Brief(
            "aim", "Aim", "Say the number.", direction="minimize", references=references,
            components={"prompt": "say number"}, max_new_tokens=4,
        )  # fmt: skip

    def examples(self, split):
        if split != "train":
            raise ValueError(f"no split {split!r}; there is 'train'")
        return [Example(str(i)) for i in range(3)]

    def episode(self, example, context):
        return AimEpisode(example, context)

    def best_files(self, rollout, header):
        return {"number.txt": f"{header}\n{rollout.artifacts['answer']}\n"}

    def close(self):
        self.closed = True


class LettersEpisode(AimEpisode):
    def __init__(self, example, context, seconds):
        super().__init__(example, context)
        self.seconds = seconds

    def result(self):
        time.sleep(self.seconds)
        codes = [ord(c) % 32 for c in self.answer]
        if not codes:
            return EpisodeResult("no_answer")
        return EpisodeResult("ok", sum(codes) / len(codes), {"objective": sum(codes) / len(codes)})


class LettersTask:
    """Any text is an answer and letters late in the alphabet are better: for engines with random weights."""

    def __init__(self, *, seconds: float = 0.0):
        self.seconds = seconds

    def brief(self):
        return coevo.Brief("letters", "Letters", "Say anything.", failure=0.0, max_new_tokens=6)

    def examples(self, split):
        return [Example(str(i)) for i in range(3)]

    def episode(self, example, context):
        return LettersEpisode(example, context, self.seconds)


class FixedContext:
    """Asks the same two batches each generation: one at the centre, one that adapts."""

    adapting_batches = 1

    def __init__(self, services=None, *, samples: int = 2):
        self.services, self.samples, self.position, self.told = services, samples, 0, 0

    def ask(self):
        self.position += 1
        if self.position > 2:
            self.position = 0
            return None
        context = Context({"prompt": "say number"}, operator="fixed")
        return Batch((context,), samples=self.samples, adapt=self.position == 2, operator="fixed")

    def tell(self, buffer):
        self.told += len(buffer.rollouts)

    def state_dict(self):
        return {"position": self.position, "told": self.told}

    def load_state_dict(self, state):
        self.position, self.told = state["position"], state["told"]


@coevo.hookimpl
def register_tasks(tasks):
    tasks.register("aim", AimTask)
    tasks.register("letters", LettersTask)


@coevo.hookimpl
def register_engines(engines):
    engines.register("numbers", NumberEngine)


@coevo.hookimpl
def register_context_updaters(updaters):
    updaters.register("fixed", FixedContext)
