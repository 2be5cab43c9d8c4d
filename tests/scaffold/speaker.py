"""An engine that writes expressions for the problem of the page; which one depends on weights, noise and luck."""

from __future__ import annotations

from contextlib import asynccontextmanager

import numpy as np
from fakes import NumberEngine, NumberPolicy

import coevo

EXPRESSIONS = ("cost - 2 * rare", "cost / new", "cost / rare", "cost + ", "new / cost")


class SpeakingPolicy(NumberPolicy):
    def _one(self, request):
        wish = np.random.default_rng(request.seed).normal(size=len(EXPRESSIONS))
        wish[:3] += self.theta
        return coevo.Completion(f" {EXPRESSIONS[int(wish.argmax())]}", (1, 2), (3, 4), "stop")


class SpeakingEngine(NumberEngine):
    @asynccontextmanager
    async def lease(self, perturbation):
        async with super().lease(perturbation) as policy:
            yield SpeakingPolicy(self, policy.theta, policy.id)


@coevo.hookimpl
def register_engines(engines):
    engines.register("speaker", SpeakingEngine)
