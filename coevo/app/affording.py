"""Whether a run's budget reaches for its first batch, before a model is loaded.

A run refuses a budget that is too small by itself, once its engine is there. Of a study that would be one run after the
other, a model each; and of a run it is a wait for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, cast

from coevo.app.blueprint import Blueprint
from coevo.app.parts import make_planner
from coevo.errors import UserError
from coevo.host.config import RunConfig
from coevo.interfaces import ContextUpdater, Engine, ParameterUpdater, Task
from coevo.loop.planner import NOT_COUNTED
from coevo.loop.services import Budget, RunServices
from coevo.optional import AdaptsIn, CountsBeforehand, drives_itself, offers
from coevo.records import Request

Counter: TypeAlias = Callable[[Request], int]
"""Tokens of a request's prompt."""


class _Counts:
    """As much of an engine as a plan needs."""

    def __init__(self, count: Counter) -> None:
        self.count_tokens = count


def budget_of(config: RunConfig, count: Counter | None) -> Budget:
    """What can be held against a plan: tokens only where they can be counted."""
    return Budget(config.calls, None if count is None else config.tokens)


def check_first_batch(
    blueprint: Blueprint,
    task: Task,
    parts: tuple[ParameterUpdater, ContextUpdater],
    services: RunServices,
    count: Counter | None = None,
) -> None:
    """Refuse a budget that is too small for the first batch and the probe at the end, or ever to train after it.

    The updaters are asked for that batch, so they are of no more use to a run.

    Args:
        blueprint: of the run.
        task: not started.
        parts: both updaters.
        services: theirs; it gets the budget.
        count: counts tokens; None leaves the limit of tokens to the engine.

    Raises:
        UserError: which budget, and what makes the batch smaller.
    """
    config = blueprint.config
    services.budget = budget_of(config, count)
    if services.budget == Budget():
        return
    parameters, contexts = parts
    engine = cast(Engine, _Counts(count or (lambda _: 0)))
    # Whether there are probes where nobody said so may hang on tokens, which are not counted here.
    unknown = config.probe.every is None and config.tokens is not None and count is None
    planner = make_planner(blueprint, task, engine, parts, services, probes=not unknown)
    asked = contexts.ask()
    if asked is None:
        return
    prepared = planner.prepare(asked, tuple(parameters.ask(asked)) if asked.adapt else ())
    planner.refusal(prepared)
    if not offers(contexts, AdaptsIn) or contexts.adapting_batches:
        planner.check_training(prepared, parameters.population)


def check_tokens(blueprint: Blueprint, task: Task) -> None:
    """Refuse a budget of tokens that nobody can keep, as far as that is known before the engine is made.

    Raises:
        UserError: what to use instead.
    """
    if blueprint.config.tokens is None:
        return
    factory = blueprint.inner_factory()
    # Of a class all methods are known; what a function makes, or what answers for others, is seen when it is there.
    uncounted = isinstance(factory, type) and not any(
        hasattr(factory, name) for name in ("count_tokens", "__getattr__")
    )
    if uncounted or task.brief().max_calls > 1 or drives_itself(task):
        raise UserError(NOT_COUNTED)


def token_counter(blueprint: Blueprint) -> Counter | None:
    """What counts the tokens of prompts as the run's engine will, without its weights; None where nothing does.

    An engine's factory may be able to (`CountsBeforehand`).
    """
    config, factory = blueprint.config, blueprint.inner_factory()
    if config.tokens is None or not offers(factory, CountsBeforehand):
        return None
    return factory.token_counter(config.model, blueprint.inner_engine()[1])
