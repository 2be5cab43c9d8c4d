"""Runs with one part of a stranger's: one of the fakes with other methods."""

from contextlib import asynccontextmanager

import fakes
from loop_kit import config, plugins

import coevo


def changed(kind, **methods):
    """A subclass of one of the fakes with other methods."""
    return type(f"Other{kind.__name__}", (kind,), methods)


def task(**methods):
    return {"tasks": changed(fakes.AimTask, **methods)}


def episode(**methods):
    """The task of the fakes, with other methods of its episodes."""
    made = changed(fakes.AimEpisode, **methods)
    return task(episode=lambda self, example, context: made(example, context))


def contexts(**methods):
    return {"context_updaters": changed(fakes.FixedContext, **methods)}


def parameters(**methods):
    import coevo_es

    return {"parameter_updaters": changed(coevo_es.EvolutionStrategy, **methods)}


def engine(**methods):
    return {"engines": changed(fakes.NumberEngine, **methods)}


def policy(complete):
    made = changed(fakes.NumberPolicy, complete=complete)

    @asynccontextmanager
    async def lease(self, perturbation):
        yield made(self, self.theta, "mine")

    return engine(lease=lease)


NAMES = {"tasks": "task", "engines": "engine", "context_updaters": "context", "parameter_updaters": "param"}


class Stranger:
    """A plugin with one part, by the name `mine`."""

    def __init__(self, part):
        ((self.kind, self.factory),) = part.items()

    @coevo.hookimpl
    def register_tasks(self, tasks):
        self._register("tasks", tasks)

    @coevo.hookimpl
    def register_engines(self, engines):
        self._register("engines", engines)

    @coevo.hookimpl
    def register_context_updaters(self, updaters):
        self._register("context_updaters", updaters)

    @coevo.hookimpl
    def register_parameter_updaters(self, updaters):
        self._register("parameter_updaters", updaters)

    def _register(self, kind, registry):
        if kind == self.kind:
            registry.register("mine", self.factory)


def start(part, **changes):
    ((kind, _),) = part.items()
    if kind == "parameter_updaters":
        changes = {"mine": {"population": 4} if "__init__" not in vars(part[kind]) else {}, **changes}
        settings = {key: value for key, value in config(**changes).items() if key != "es"}
    else:
        settings = config(**changes)
    return coevo.run({**settings, NAMES[kind]: "mine", "generations": 1}, plugins(Stranger(part)))


def raises(error):
    def method(self, *arguments):
        raise error

    return method
