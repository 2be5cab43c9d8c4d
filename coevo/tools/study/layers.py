"""What a run of a study is configured by: base, then its problem, its budget and its arm, each over the one before."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TypeAlias, cast

from coevo.app.blueprint import Blueprint
from coevo.errors import UserError, did_you_mean
from coevo.host.config import RunConfig, build
from coevo.host.discovery import Registries
from coevo.records import Json
from coevo.tools.study.frame import Cell

Table: TypeAlias = Mapping[str, Json]
Layers: TypeAlias = Mapping[Cell, tuple[Table, Table]]
"""Cell → (table of its problem, table of its budget)."""


def merged(base: Table, *over: Table) -> dict[str, Json]:
    """Every table over those before it, merged key by key; all stay as they are."""
    out = dict(base)
    for own in over:
        for key, value in own.items():
            below = out.get(key)
            if isinstance(value, dict) and isinstance(below, dict):
                out[key] = merged(cast(Table, below), cast(Table, value))
            else:
                out[key] = value
    return out


def configurations(
    base: Table, layers: Layers, arms: Mapping[str, Table], registries: Registries
) -> dict[tuple[Cell, str], RunConfig]:
    """(cell, arm) → the configuration of its runs, checked.

    Raises:
        UserError: the first thing that is wrong, and whose.
    """
    tables = registries.names
    configs: dict[tuple[Cell, str], RunConfig] = {}
    used: set[str] = set()
    for cell, (of_problem, of_budget) in layers.items():
        for where, own in _named(cell, of_problem, of_budget, arms):
            if "plugins" in own:
                raise UserError(f"{where}.plugins: plugin files are loaded once for all runs; name them below [base]")
        for arm, own in arms.items():
            with _said_of(arm, cell):
                config = build(merged(base, of_problem, of_budget, own), tables)
                chosen = {config.task, config.engine, config.context, config.param, *config.loggers}
                # What an arm says itself it has to use; what the others say is for the arms that do.
                kept = {k: v for k, v in config.options.items() if k in chosen or k in own}
                config = config.model_copy(update={"options": kept})
                Blueprint(config, registries).checked()
            configs[cell, arm] = config
            used |= chosen
    shared = {"base": base}
    for cell, (of_problem, of_budget) in layers.items():
        shared |= dict(_named(cell, of_problem, of_budget, {}))
    for where, table in shared.items():
        for key in table:
            if key in tables and key not in used and key not in registries.loggers:
                raise UserError(f"{where}.{key}: no arm uses {key!r}{did_you_mean(key, sorted(used))}")
    return configs


def _named(cell: Cell, of_problem: Table, of_budget: Table, arms: Mapping[str, Table]) -> Generator[tuple[str, Table]]:
    yield f"problems.{cell.problem}", of_problem
    yield f"budgets.{cell.budget}", of_budget
    for arm, own in arms.items():
        yield f"arms.{arm}", own


def who(arm: str, cell: Cell) -> str:
    """An arm in what is said of it, with problem and budget where the study has them."""
    axes = (("problem", cell.problem), ("budget", cell.budget))
    return f"arm {arm!r}" + "".join(f", {axis} {name!r}" for axis, name in axes if name)


@contextmanager
def _said_of(arm: str, cell: Cell) -> Generator[None]:
    try:
        yield
    except UserError as error:
        raise UserError(f"{who(arm, cell)}: {error}") from None
