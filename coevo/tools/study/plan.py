"""From a study's file to its runs, every one of them checked before the first starts.

A study file::

    seeds = [0, 1, 2]

    [base]                  # a run's configuration
    task = "tsp_construct"

    [problems.tsp_construct]  # optional: every arm on every problem; `task` is the name unless it says otherwise
    [problems.kp_construct]

    [budgets.512]           # optional: and with every budget
    calls = 512

    [arms."es+sample"]      # what differs from base
    param = "es"
    context = "sample"
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

from coevo.app.blueprint import Blueprint
from coevo.app.inputs import leaves
from coevo.errors import CoevoError, UserError, did_you_mean
from coevo.host import discovery
from coevo.host.config import RunConfig, build, plugin_files
from coevo.host.discovery import Plugins, Registries
from coevo.records import Json
from coevo.runs.folder import RunFolder
from coevo.tools.study.entries import read_entries
from coevo.tools.study.frame import Cell, Frame, Subject

NO_RESULT = ("loggers", "name", "runs", "anchor_seconds")
"""Keys of a run that change nothing of its results."""

Table: TypeAlias = Mapping[str, Json]
Layers: TypeAlias = Mapping[Cell, tuple[Table, Table]]
"""Cell → (table of its problem, table of its budget)."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a study and its configuration."""

    subject: Subject
    config: RunConfig


@dataclass(frozen=True, slots=True)
class Study:
    """A checked study. `runs` come seed by seed, so that a broken study has whole seeds.

    Attributes:
        file: as the user gave it.
        folder: where its runs and tables are.
    """

    frame: Frame
    file: Path
    folder: Path
    runs: tuple[PlannedRun, ...]


def read_study(file: Path, runs: str = "runs", plugins: Plugins | None = None) -> tuple[Study, Plugins]:
    """Read and check a study.

    Args:
        file: its TOML file.
        runs: the folder of the runs; those of the study are below `<runs>/<name>`.
        plugins: already loaded ones; those that `[base]` names are loaded besides.

    Raises:
        UserError: the first thing that is wrong, in one line.
    """
    entries = read_entries(file)
    plugins, base = _with_files(entries.base, plugins)
    layers: Layers = {
        Cell(problem, budget): (({"task": problem} if problem else {}) | of_problem, of_budget)
        for problem, of_problem in (entries.problems or {"": {}}).items()
        for budget, of_budget in (entries.budgets or {"": {}}).items()
    }
    configs = configurations(base, layers, entries.arms, plugins.registries())
    folder = Path(runs) / entries.name
    planned: list[PlannedRun] = []
    for seed in entries.seeds:
        for (cell, arm), config in configs.items():
            run = Subject(arm, seed, f"{arm}-s{seed}", folder.joinpath(*cell.parts, f"{arm}-s{seed}"), cell)
            own = {"seed": seed, "name": run.name, "runs": str(run.path.parent)}
            planned.append(PlannedRun(run, config.model_copy(update=own)))
    frame = Frame(entries.name, tuple(entries.arms), tuple(entries.seeds), tuple(layers), str(file))
    return Study(frame, file, folder, tuple(planned)), plugins


def _with_files(base: Mapping[str, Json], plugins: Plugins | None) -> tuple[Plugins, Mapping[str, Json]]:
    files = plugin_files(base)
    if not files:
        return plugins or discovery.load(), base
    # The study may be gone on with from another folder.
    absolute = [str(Path(file).absolute()) for file in files]
    return discovery.load(absolute), {**base, "plugins": absolute}


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
            with said_of(arm, cell):
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


@contextmanager
def said_of(arm: str, cell: Cell) -> Generator[None]:
    """Say of a user's mistake whose it is: an arm's, with problem and budget where the study has them."""
    try:
        yield
    except UserError as error:
        axes = (("problem", cell.problem), ("budget", cell.budget))
        where = "".join(f", {axis} {name!r}" for axis, name in axes if name)
        raise UserError(f"arm {arm!r}{where}: {error}") from None


def check_same(run: PlannedRun, registries: Registries) -> str:
    """Refuse a run on disk that was made with another configuration.

    Returns:
        What is wrong with a configuration that cannot be read, else an empty text.

    Raises:
        UserError: the run, the key and both values.
    """
    folder = RunFolder(run.subject.path)
    try:
        made = Blueprint(build(folder.config(), registries.names), registries)
    except CoevoError as error:
        return f"its configuration is damaged: {error}"  # it fails by itself, and the others go on
    before = _flat(made)
    # The day on which a run began is its own, where the study names none.
    date, asked = made.date(), Blueprint(run.config, registries)
    now = _flat(asked.dated(date) if date else asked)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise UserError(
                f"run {run.subject.label!r} was made with {_said(key, before)} and the study now asks for "
                f"{_said(key, now)}; give the study another name, or remove {str(run.subject.path)!r}"
            )
    return ""


def _said(key: str, values: Mapping[str, Json]) -> str:
    return f"{key} = {values[key]!r}" if key in values else f"no {key}"


def _flat(blueprint: Blueprint) -> dict[str, Json]:
    """`a.b` → value of everything that may change a result."""
    config, loggers = blueprint.config, blueprint.registries.loggers
    data: dict[str, Json] = {k: v for k, v in config.to_toml_data().items() if k not in NO_RESULT and k not in loggers}
    # Where a plugin's file is says nothing, and changes with the machine.
    data["plugins"] = [Path(str(file)).name for file in config.plugins]
    return dict(leaves(data))
