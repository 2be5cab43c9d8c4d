"""Engines that end a run in the ways in which runs end badly."""

import os
import signal
from contextlib import asynccontextmanager

import fakes

import coevo


class Silent(fakes.NumberEngine):
    """Every request fails."""

    def __init__(self, *, spread: float = 0.1):
        super().__init__(spread=spread)
        self.fail_next = 10**9


class Tired(fakes.NumberEngine):
    """Gives up before its first answer."""

    @asynccontextmanager
    async def lease(self, perturbation):
        raise coevo.RunError("the engine is tired")
        yield


class Ending(fakes.NumberEngine):
    """Ends its process once its run is over."""

    def close(self):
        os.kill(os.getpid(), signal.SIGTERM)


class Counting(fakes.NumberEngine):
    """Counts the tokens of prompts without being made."""

    @staticmethod
    def token_counter(model, options):
        return lambda request: 3


def fault():
    """A fault of the plugin, not of the user."""
    raise ZeroDivisionError("no engine")


@coevo.hookimpl
def register_engines(engines):
    engines.register("silent", Silent)
    engines.register("tired", Tired)
    engines.register("ending", Ending)
    engines.register("counting", Counting)
    engines.register("fault", fault)
