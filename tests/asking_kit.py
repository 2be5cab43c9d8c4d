"""How tests of engines ask."""

import asyncio

from coevo.records import Request, Sampling


def ask(text, *, seed=0, prefill="", stop=(), logprobs=False, **sampling):
    return Request(
        messages=({"role": "user", "content": text},),
        prefill=prefill,
        stop=tuple(stop),
        sampling=Sampling(**{"temperature": 1.0, "max_new_tokens": 8, **sampling}),
        seed=seed,
        logprobs=logprobs,
    )


def complete(engine, requests, perturbation=None):
    async def run():
        async with engine.lease(perturbation) as policy:
            return await policy.complete(requests)

    return asyncio.run(run())
