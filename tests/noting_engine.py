"""An engine that notes outside of its process what it was asked, and hangs where it is told to.

`seen` in the working folder has a line a call. `hang`, where there is one, says after how many calls nothing is
answered any more: there a process can be killed whose state is known, however fast the machine is.
"""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import fakes

import coevo

SEEN, HANG = Path("seen"), Path("hang")


class NotingPolicy(fakes.NumberPolicy):
    async def complete(self, requests):
        with SEEN.open("ab", buffering=0) as file:
            file.write(b"asked\n" * len(requests))
        if HANG.exists() and SEEN.read_text().count("\n") >= int(HANG.read_text()):
            await asyncio.Event().wait()
        return [self._one(request) for request in requests]


class NotingEngine(fakes.NumberEngine):
    @asynccontextmanager
    async def lease(self, perturbation):
        yield NotingPolicy(self, self.theta, "any")


@coevo.hookimpl
def register_engines(engines):
    engines.register("noting", NotingEngine)
