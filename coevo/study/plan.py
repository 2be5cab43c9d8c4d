"""From a study's file to its runs, every one of them checked before the first starts.

A study file::

    seeds = [0, 1, 2]

    [base]                  # a run's configuration
    task = "tsp_construct"

    [arms."es+sample"]      # what differs from base
    param = "es"
    context = "sample"
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from coevo import discovery
from coevo.assembly import table_names, validate
from coevo.config import RunConfig, build, plugin_files, read_file
from coevo.discovery import Plugins, Registries
from coevo.errors import UserError
from coevo.records import Json
from coevo.registry import did_you_mean
from coevo.study.entries import arms_of, folder_name, seeds_of, table_of

KEYS = ("name", "seeds", "base", "arms")


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One arm with one seed."""

    arm: str
    seed: int
    config: RunConfig

    @property
    def path(self) -> Path:
        """Its folder."""
        return Path(self.config.runs) / str(self.config.name)


@dataclass(frozen=True, slots=True)
class Study:
    """A checked study. `runs` come seed by seed, so that a broken study has whole seeds.

    Attributes:
        file: as the user gave it.
        folder: where its runs and tables are.
        arms: names in the order of the file; the others are compared with the first.
    """

    name: str
    file: Path
    folder: Path
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
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
    arms = {folder_name("the name of an arm", arm): table_of(f"arms.{arm}", own) for arm, own in arms_of(data).items()}
    plugins, base = _with_files(base, plugins)
    registries = plugins.registries()
    configs = _configs(base, arms, registries)
    folder = Path(runs) / name
    planned = tuple(
        PlannedRun(arm, seed, _placed(config, folder, arm, seed)) for seed in seeds for arm, config in configs.items()
    )
    return Study(name, file, folder, tuple(arms), seeds, planned), plugins


def _placed(config: RunConfig, folder: Path, arm: str, seed: int) -> RunConfig:
    return config.model_copy(update={"seed": seed, "name": f"{arm}-s{seed}", "runs": str(folder)})


def _with_files(base: Mapping[str, Json], plugins: Plugins | None) -> tuple[Plugins, Mapping[str, Json]]:
    files = plugin_files(base)
    if not files:
        return plugins or discovery.load(), base
    # The study may be gone on with from another folder.
    absolute = [str(Path(file).absolute()) for file in files]
    return discovery.load(absolute), {**base, "plugins": absolute}


def merged(base: Mapping[str, Json], own: Mapping[str, Json]) -> dict[str, Json]:
    """`own` over `base`, tables merged key by key; both stay as they are."""
    out = dict(base)
    for key, value in own.items():
        below = out.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            out[key] = merged(cast(Mapping[str, Json], below), cast(Mapping[str, Json], value))
        else:
            out[key] = value
    return out


def _configs(
    base: Mapping[str, Json], arms: Mapping[str, Mapping[str, Json]], registries: Registries
) -> dict[str, RunConfig]:
    tables = table_names(registries)
    configs: dict[str, RunConfig] = {}
    used: set[str] = set()
    for arm, own in arms.items():
        if "plugins" in own:
            raise UserError(f"arms.{arm}.plugins: plugin files are loaded once for all arms; name them below [base]")
        with _said_of(arm):
            config = build(merged(base, own), tables)
            chosen = {config.task, config.engine, config.context, config.param, *config.loggers}
            # What an arm says itself it has to use; what base says is for the arms that do.
            kept = {k: v for k, v in config.options.items() if k in chosen or k in own}
            configs[arm] = config.model_copy(update={"options": kept})
            validate(configs[arm], registries)
        used |= chosen
    for table in base:
        if table in tables and table not in used and table not in registries.loggers:
            raise UserError(f"base.{table}: no arm uses {table!r}{did_you_mean(table, sorted(used))}")
    return configs


@contextmanager
def _said_of(arm: str) -> Generator[None]:
    """Name the arm in what is refused of its configuration."""
    try:
        yield
    except UserError as error:
        raise UserError(f"arm {arm!r}: {error}") from None
