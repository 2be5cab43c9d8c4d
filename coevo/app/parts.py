"""What a run has besides its configuration: engines by name for others, and who plans its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coevo.app.blueprint import Blueprint, check_model
from coevo.host.config import RunConfig
from coevo.host.discovery import load, wanted_local
from coevo.host.registry import Option
from coevo.interfaces import ContextUpdater, Engine, ParameterUpdater, Task
from coevo.loop.planner import Planner
from coevo.loop.services import RunServices
from coevo.optional import Credits, SizedBy, offers
from coevo.records import Json


def local_files(config: RunConfig) -> tuple[str, ...]:
    """The run's plugin files by their full paths, that of the working folder among them: for other processes."""
    files = [*wanted_local(Path.cwd()), *map(Path, config.plugins)]
    return tuple(dict.fromkeys(str(file.resolve()) for file in files))


def check_engine(
    name: str, options: Mapping[str, Json], *, model: str, plugins: Sequence[str] = ()
) -> dict[str, Option]:
    """Refuse what `make_engine` would refuse of names, options and model, before anything is loaded.

    Returns:
        The options that the engine has, by name.

    Raises:
        UserError: the first thing that is wrong.
    """
    registries = load(plugins, local="known").registries()
    registries.engines.validate(name, options)
    check_model(registries, name, model)
    return {option.name: option for option in registries.engines.options(name)}


def make_engine(name: str, options: Mapping[str, Json], *, model: str, plugins: Sequence[str] = ()) -> Engine:
    """Make an engine by name: for engines that have others inside, in this process or another.

    Args:
        name: as `--engine` takes it.
        options: its options.
        model: as `--model` takes it.
        plugins: files that may define it, beside the installed plugins and `coevo_plugin.py` of the working folder.

    Raises:
        UserError: unknown name or option, wrong value, or a model that it cannot load.
    """
    return load(plugins, local="known").registries().engines.create(name, options, model=model, plugins=tuple(plugins))


def make_planner(
    blueprint: Blueprint,
    task: Task,
    engine: Engine,
    parts: tuple[ParameterUpdater, ContextUpdater],
    services: RunServices,
    *,
    probes: bool = True,
) -> Planner:
    """Who plans the batches of a run; what it keeps for the probe at the end is noted in `services`.

    Args:
        blueprint: of the run.
        task: gives examples and episodes.
        engine: as much of it as a plan needs, which is `count_tokens`.
        parts: both updaters.
        services: theirs, with the budget.
        probes: False leaves them out.
    """
    config, (parameters, contexts), brief = blueprint.config, parts, task.brief()
    planner = Planner(
        task=task,
        brief=brief,
        engine=engine,
        services=services,
        sampling=blueprint.sampling(brief),
        answers=parameters.answers,
        common=parameters.common_random_numbers,
        credits=offers(contexts, Credits),
        chunk=config.rollouts.chunk,
        probe_answers=config.probe.answers,
        sized_by=str(contexts.sized_by) if offers(contexts, SizedBy) else "",
    )
    planner.probe_every = planner.interval(config.probe.every, trains=parameters.population > 0) if probes else 0
    services.reserved_calls = planner.reserved_calls()
    return planner
