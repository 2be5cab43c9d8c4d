"""A plugin with an engine for the pool: numbers, and it does to its own process what a request says.

Each process writes into `folder` what was asked of it, under its number.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import fakes
import numpy as np

import coevo
from coevo.errors import CoevoError


class SadError(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


class Policy(fakes.NumberPolicy):
    async def complete(self, requests):
        word = requests[0].messages[-1]["content"].split()[0]
        self.engine.note(word)
        await asyncio.sleep(self.engine.delay)
        match word:
            case "die-once" if not self.engine.first("died"):
                pass
            case "die" | "die-once":
                os.kill(os.getpid(), signal.SIGKILL)
            case "refuse":
                raise coevo.UserError("this cannot be asked; ask otherwise")
            case "fail":
                raise RuntimeError("no luck")
            case "sad":
                raise SadError("this", "that")
            case "missing":
                raise coevo.MissingExtraError("engine 'frail'", "nothing", "frail")
            case "wait":
                await asyncio.sleep(60)
            case "slow":
                await asyncio.sleep(0.3)
                return [coevo.Completion(str(os.getpid()), (1,), (2,), "stop")]
            case "who":
                return [coevo.Completion(str(os.getpid()), (1,), (2,), "stop")]
        return await super().complete(requests)


class FrailEngine(fakes.NumberEngine):
    """An engine that may be told to die."""

    def __init__(
        self,
        model: str = "",
        *,
        folder: str,
        delay: float = 0.0,
        rolling: bool = False,
        odd: str = "",
        threads: int = 0,
    ):
        super().__init__(model, delay=delay)
        self.folder, self.odd, self.threads = Path(folder), odd, threads
        self.capabilities = coevo.Capabilities(adapts=True, rolling=rolling)
        if odd == "start" and self.first("odd"):
            self.theta += 1
        self.applied = 0

    def note(self, what):
        with (self.folder / f"{os.getpid()}.log").open("a") as file:
            file.write(f"{what}\n")

    def first(self, what):
        """Whether no process was here before."""
        try:
            (self.folder / what).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    @asynccontextmanager
    async def lease(self, perturbation):
        self.note(f"lease {perturbation.seed if perturbation else 'centre'}")
        async with super().lease(perturbation) as policy:
            yield Policy(self, policy.theta, policy.id)

    def apply(self, update):
        self.note(f"apply {[seed for seed, _ in update.terms]}")
        if self.odd == "die" and self.first("odd"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.odd == "raise":
            raise CoevoError("no update today")
        super().apply(update)
        if self.odd == "apply" and self.first("odd"):
            self.theta = self.theta * np.float32(1.000001)

    def save_anchor(self, path):
        with path.open("wb") as file:
            np.save(file, self.theta)

    def load_anchor(self, path):
        self.note(f"load {path.name}")
        self.theta = np.load(path)

    def describe(self):
        return {**super().describe(), "threads": str(self.threads)}


@coevo.hookimpl
def register_engines(engines):
    engines.register("frail", FrailEngine)
