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

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coevo.errors import UserError, did_you_mean
from coevo.host import discovery
from coevo.host.config import RunConfig, plugin_files, read_file
from coevo.host.discovery import Plugins
from coevo.records import Json
from coevo.tools.study.entries import axis_of, folder_name, seeds_of, table_of
from coevo.tools.study.frame import Cell, Frame, Subject
from coevo.tools.study.layers import Layers, configurations

KEYS = ("name", "seeds", "base", "problems", "budgets", "arms")


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
    data = read_file(file)
    for key in data:
        if key not in KEYS:
            hint = "; it belongs below [base]" if key in RunConfig.model_fields else did_you_mean(key, KEYS)
            raise UserError(f"unknown key {key!r} in study {str(file)!r}{hint}")
    name = folder_name("name", data.get("name", file.stem))
    seeds = seeds_of(data.get("seeds"))
    base = table_of("base", data.get("base", {}))
    arms, problems, budgets = (axis_of(data, key) for key in ("arms", "problems", "budgets"))
    plugins, base = _with_files(base, plugins)
    registries = plugins.registries()
    layers: Layers = {
        Cell(problem, budget): (({"task": problem} if problem else {}) | dict(of_problem), of_budget)
        for problem, of_problem in (problems or {"": {}}).items()
        for budget, of_budget in (budgets or {"": {}}).items()
    }
    configs = configurations(base, layers, arms, registries)
    folder = Path(runs) / name
    planned = tuple(
        _placed(config, Subject(arm, seed, f"{arm}-s{seed}", folder.joinpath(*cell.parts, f"{arm}-s{seed}"), cell))
        for seed in seeds
        for (cell, arm), config in configs.items()
    )
    frame = Frame(name, tuple(arms), seeds, tuple(layers), str(file))
    return Study(frame, file, folder, planned), plugins


def _placed(config: RunConfig, run: Subject) -> PlannedRun:
    update = {"seed": run.seed, "name": run.name, "runs": str(run.path.parent)}
    return PlannedRun(run, config.model_copy(update=update))


def _with_files(base: Mapping[str, Json], plugins: Plugins | None) -> tuple[Plugins, Mapping[str, Json]]:
    files = plugin_files(base)
    if not files:
        return plugins or discovery.load(), base
    # The study may be gone on with from another folder.
    absolute = [str(Path(file).absolute()) for file in files]
    return discovery.load(absolute), {**base, "plugins": absolute}
