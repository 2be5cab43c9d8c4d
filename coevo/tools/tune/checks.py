"""What is tuned and at which sigmas; all of it is checked before anything is started."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from coevo.app.blueprint import Blueprint
from coevo.errors import UserError
from coevo.interfaces import Engine
from coevo.loop.plan import MOST_ANSWERS
from coevo.optional import Moves, offers
from coevo.records import Perturbation
from coevo.tools.tune.proposal import Strategy

GRID = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Default sigmas, in units of the configuration's own."""

VISIBLE = 0.25
"""Share of the served weights that the smallest default sigma moves at least."""

SMALLEST = 1e-9
"""Where it begins: the fp32 master itself has hardly a smaller step."""

LARGEST = 1e3
"""Where the search for a visible sigma ends."""

FALLBACK = "es"
"""The parameter updater that is tuned where the configuration's has no sigma (`--param none`)."""

POPULATION = 16
"""Where the parameter updater does not say its own."""


def strategy_of(blueprint: Blueprint) -> Strategy:
    """The parameter updater to tune: the configuration's, or `es` where that has no sigma.

    Raises:
        UserError: there is no `es` either.
    """
    updaters, name = blueprint.registries.parameter_updaters, blueprint.config.param
    given = blueprint.parameter_options()
    if "sigma" not in [option.name for option in updaters.options(name)]:
        name, given = FALLBACK, {}
    values = updaters.defaults(name)
    values |= updaters.validate(name, given)
    return Strategy(
        name=name,
        sigma=float(values["sigma"] or 0.0),
        population=int(values.get("population") or POPULATION),
        min_moved=float(values.get("min_moved") or 0.0),
        common=values.get("common_random_numbers") is not False,
    )


def without_context(blueprint: Blueprint) -> Blueprint:
    """The same for any context updater: the task's own prompt is asked, and some updaters refuse some tasks."""
    config = blueprint.config
    kept = {config.task, config.engine, *(() if config.param == "none" else (config.param,))}
    options = {name: table for name, table in config.options.items() if name in kept}
    return blueprint.changed(context="none", options=options)


def default_sigmas(strategy: Strategy) -> list[float]:
    """Factors of two around the configuration's sigma."""
    if strategy.sigma == 0.0:
        raise UserError(f"{strategy.name}.sigma is 0, which is no size to start from; give --sigmas 1e-3,2e-3,…")
    return [max(strategy.sigma, SMALLEST) * factor for factor in GRID]


def visible(sigmas: Sequence[float], engine: Engine) -> list[float]:
    """`sigmas`, doubled together until the smallest moves a fair share of the served weights.

    A run whose sigma is rounded away is the first that wants to be tuned, and around it there is nothing to measure.
    """
    grid = list(sigmas)
    while offers(engine, Moves) and grid[-1] < LARGEST and engine.moved(Perturbation(1, grid[0])) < VISIBLE:
        grid = [2.0 * sigma for sigma in grid]
    return grid


def check_sizes(sigmas: Sequence[float], members: int, answers: int) -> None:
    """Refuse what cannot be measured.

    Raises:
        UserError: the first that is wrong.
    """
    for name, value, why in (
        ("members", members, "one member differs from nothing"),
        ("answers", answers, "one answer says nothing of its luck"),
    ):
        if value < 2:
            raise UserError(f"--{name} got {value}: it should be 2 or more, because {why}")
    if members * answers > MOST_ANSWERS:
        raise UserError(f"{members} members with {answers} answers make more than {MOST_ANSWERS:,} rollouts a sigma")
    if not sigmas:
        raise UserError("--sigmas is empty; write it as --sigmas 1e-3,2e-3")
    for index, sigma in enumerate(sigmas):
        if not math.isfinite(sigma) or sigma <= 0.0:
            raise UserError(f"--sigmas got {sigma:g}: each should be a number above 0")
        with np.errstate(over="ignore", under="ignore"):
            held = float(np.float32(sigma))
        if not 0.0 < held < math.inf:
            raise UserError(f"--sigmas got {sigma:g}: 32-bit numbers do not reach there")
        if sigma in sigmas[:index]:
            raise UserError(f"--sigmas has {sigma:g} twice")
