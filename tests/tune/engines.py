"""Engines to tune, and a task of one example, as a plugin file."""

import hashlib

import fakes
import numpy as np

import coevo
from coevo.records import EpisodeResult, Example


class OneEpisode(fakes.AimEpisode):
    def result(self):
        value = float(self.answer)
        if value > 50:
            return EpisodeResult("exception")
        return EpisodeResult("ok", -abs(value - 1.3), {"objective": abs(value - 1.3)}, {"answer": self.answer})


class OneTask(fakes.AimTask):
    """Say one number, 1.3; to begin with, answers are a little worse than the baseline of 1.1667."""

    def examples(self, split):
        return [Example("0")]

    def episode(self, example, context):
        return OneEpisode(example, context)


class ChaoticPolicy(fakes.NumberPolicy):
    def _one(self, request):
        index = int(request.messages[-1]["content"].split()[-1])
        own = int.from_bytes(hashlib.sha256(self.theta.tobytes()).digest()[:8], "little")
        luck = np.random.default_rng([request.seed, own]).normal(0.0, self.engine.spread)
        return coevo.Completion(repr(float(self.theta[index] + luck)), (1, 2, index), (3, 4), "stop")


class ChaoticEngine(fakes.NumberEngine):
    """Its sampling noise is new with every change of the weights: common seeds have nothing in common."""

    def lease(self, perturbation):
        leased = super().lease(perturbation)

        class Lease:
            async def __aenter__(self):
                policy = await leased.__aenter__()
                return ChaoticPolicy(policy.engine, policy.theta, policy.id)

            async def __aexit__(self, *error):
                return await leased.__aexit__(*error)

        return Lease()


class RoundedEngine(fakes.NumberEngine):
    """Rounds away what is small."""

    def moved(self, perturbation):
        return 0.5 if abs(perturbation.sigma) > 1e-3 else 0.001


class SilentEngine(fakes.NumberEngine):
    """Says the same whatever its weights are, and does not know what a perturbation moves."""

    moved = None

    def __init__(self, model: str = "", *, text: str = "0.25"):
        super().__init__(model)
        self.text = text

    def lease(self, perturbation):
        leased, text = super().lease(perturbation), self.text

        class Lease:
            id = "silent"

            async def __aenter__(self):
                await leased.__aenter__()
                return self

            async def __aexit__(self, *error):
                return await leased.__aexit__(*error)

            async def complete(self, requests):
                return [coevo.Completion(text, (1,), (2,), "stop") for _ in requests]

        return Lease()


class FailingEngine(fakes.NumberEngine):
    """Never answers."""

    def lease(self, perturbation):
        self.fail_next = 10**9
        return super().lease(perturbation)


@coevo.hookimpl
def register_tasks(tasks):
    tasks.register("one", OneTask)


@coevo.hookimpl
def register_engines(engines):
    engines.register("chaotic", ChaoticEngine)
    engines.register("rounded", RoundedEngine)
    engines.register("silent", SilentEngine)
    engines.register("failing", FailingEngine)
