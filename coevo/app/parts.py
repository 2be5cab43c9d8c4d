"""From names and options to parts: what can be checked before anything is started."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from coevo.errors import UserError
from coevo.host.config import RunConfig, problem_name
from coevo.host.discovery import Registries, load, wanted_local
from coevo.host.registry import Option
from coevo.interfaces import Brief, ContextUpdater, Engine, ParameterUpdater, Task
from coevo.loop.plan import MOST_ANSWERS
from coevo.loop.planner import Planner
from coevo.loop.services import RunServices, Shown
from coevo.machine.places import expanded
from coevo.models.catalogue import ALIASES, resolve
from coevo.optional import AdaptsIn, ChecksModel, Credits, SizedBy, always_adapts, never_adapts, offers
from coevo.records import Json, Sampling


def table_names(registries: Registries) -> list[str]:
    """Names that may have a table of options in a configuration."""
    kinds = (
        registries.tasks, registries.engines, registries.parameter_updaters, registries.context_updaters,
        registries.loggers,
    )  # fmt: skip
    return sorted({name for registry in kinds for name in registry.names})


def updater_options(config: RunConfig, registries: Registries) -> dict[str, Json]:
    """Options of the parameter updater; `--population` is its option of that name."""
    # One table for two updaters of one name (`none`): it is the context updater's.
    shared = config.param == config.context
    options: dict[str, Json] = {} if shared else dict(config.options.get(config.param, {}))
    if config.population is not None:
        known = [option.name for option in registries.parameter_updaters.options(config.param)]
        if "population" not in known:
            raise UserError(f"parameter updater {config.param!r} has no population; leave out --population")
        options["population"] = config.population
    return options


def validate(config: RunConfig, registries: Registries) -> None:
    """Check every name and option before anything is started.

    Raises:
        UserError: the first that is wrong.
    """
    registries.tasks.validate(config.task, config.options.get(config.task, {}))
    registries.engines.validate(config.engine, config.options.get(config.engine, {}))
    registries.context_updaters.validate(config.context, config.options.get(config.context, {}))
    registries.parameter_updaters.validate(config.param, updater_options(config, registries))
    for name in config.loggers:
        registries.loggers.validate(name, config.options.get(name, {}))
    if len(set(config.loggers)) < len(config.loggers):
        raise UserError(f"loggers got {list(config.loggers)!r}: each may be named once")
    chosen = {config.task, config.engine, config.context, config.param, *config.loggers}
    for table in config.options:
        # A logger may have options and be left out by --quiet.
        if table not in chosen and table not in registries.loggers:
            raise UserError(
                f"options are given for {table!r}, which this run does not use; it uses {', '.join(sorted(chosen))}"
            )


def check_model(config: RunConfig, registries: Registries) -> None:
    """Refuse a model that the engine could not load before anything is started.

    Names are the engine's to know: its factory may have a `check_model(model)` of its own. Without one an
    engine that cannot do without a model, or is given a path, loads what `coevo.models.catalogue` resolves.

    Raises:
        UserError: what is wrong with it.
    """
    _check_model(registries, config.engine, config.model)


def _check_model(registries: Registries, engine: str, name: str) -> None:
    factory = registries.engines.entry(engine).factory
    model = inspect.signature(factory).parameters.get("model")
    if offers(factory, ChecksModel):
        factory.check_model(name)
    elif model is not None and (model.default is model.empty or os.sep in name or os.path.exists(name)):
        resolve(name)


def inner_engine(config: RunConfig, registries: Registries) -> tuple[str, Mapping[str, Json]]:
    """The engine that serves the model, and its options: of a pool, that of its workers.

    A pool is an engine with an option `engine`, a name, and an option `options`.
    """
    defaults = {option.name: option.default for option in registries.engines.options(config.engine)}
    given = {**defaults, **config.options.get(config.engine, {})}
    name, options = given.get("engine"), cast(object, given.get("options") or {})
    if isinstance(name, str) and "options" in defaults and isinstance(options, dict):
        return name, cast(dict[str, Json], options)
    return config.engine, config.options.get(config.engine, {})


DATE = "date"
"""The option of engines whose chat template may print today's, and what they then describe themselves with."""


def with_date(config: RunConfig, registries: Registries, date: str) -> RunConfig:
    """The configuration with a date for the engine that serves the model, where it takes one and has none yet."""
    inner, given = inner_engine(config, registries)
    if inner not in registries.engines or DATE not in {option.name for option in registries.engines.options(inner)}:
        return config
    dated = {DATE: date, **given}
    table = dated if inner == config.engine else {**config.options.get(config.engine, {}), "options": dated}
    return config.model_copy(update={"options": {**config.options, config.engine: table}})


def date_of(config: RunConfig, registries: Registries) -> str:
    """The date that the engine which serves the model is given, empty where it is given none."""
    known = config.engine in registries.engines
    return str(inner_engine(config, registries)[1].get(DATE) or "") if known else ""


def lasting_model(config: RunConfig, registries: Registries) -> str:
    """The model's name; a folder by its full path, so that the run can be read, replayed and resumed from any other."""
    folder = expanded(config.model)
    inner, _ = inner_engine(config, registries)
    own_names = inner in registries.engines and offers(registries.engines.entry(inner).factory, ChecksModel)
    return (
        config.model
        if own_names or config.model in ALIASES or not os.path.isfile(folder / "config.json")
        else str(folder.absolute())
    )


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
    _check_model(registries, name, model)
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


def run_path(config: RunConfig) -> Path:
    """The folder of a new run; without a name the first free `<task>-<param>-<context>-<number>`."""
    runs = Path(config.runs)
    if config.name is not None:
        last = config.name.rstrip(os.sep).rpartition(os.sep)[2]
        if last != last.strip() or last.startswith("-") or last in ("", ".", ".."):
            raise UserError(f"--name got {config.name!r}: expected a name such as 'first', without spaces around it")
        return Path(config.name) if os.sep in config.name else runs / config.name
    task = problem_name(config.task, config.options)
    number = 1
    while os.path.lexists(path := runs / f"{task}-{config.param}-{config.context}-{number}"):
        number += 1
    return path


def make_updaters(
    config: RunConfig, registries: Registries, brief: Brief, services: RunServices
) -> tuple[ParameterUpdater, ContextUpdater]:
    """Both updaters, and the parts of `services` that depend on them.

    Raises:
        UserError: one of them refuses its options or the task.
    """
    parameters = registries.parameter_updaters.create(
        config.param, updater_options(config, registries), services=Shown(services), brief=brief
    )
    services.batch_answers = parameters.population * parameters.answers
    services.member_answers = parameters.answers if parameters.population else 0
    if services.batch_answers > MOST_ANSWERS:
        raise UserError(
            f"population {parameters.population} with {parameters.answers} answers a member makes "
            f"{services.batch_answers:,} rollouts a batch; expected at most {MOST_ANSWERS:,}"
        )
    contexts = registries.context_updaters.create(
        config.context, config.options.get(config.context, {}), services=Shown(services), brief=brief
    )
    # An updater that draws its operators adapts in a number of batches that is known on average only.
    adapting = contexts.adapting_batches if offers(contexts, AdaptsIn) else 1
    services.planned = round(config.generations * float(adapting))
    return parameters, contexts


def check_needs(
    config: RunConfig, registries: Registries, parameters: ParameterUpdater, engine: Engine | None = None
) -> None:
    """Refuse an engine that cannot do what the parameter updater needs.

    Without `engine` only what its factory says is known: a class attribute `adapts`, optional, for what all of
    its engines can or cannot. So `--param es` on an engine for API models is refused before it asks anything.

    Raises:
        UserError: what to use instead.
    """
    needs = parameters.needs
    if engine is None:
        unable = needs == "adapts" and never_adapts(registries.engines.entry(config.engine).factory)
    else:
        unable = bool(needs) and not getattr(engine.capabilities, needs)
    if unable:
        names = [entry.name for entry in registries.engines if always_adapts(entry.factory)]
        listed = f" ({', '.join(names)})" if names else ""
        able = f"an engine that adapts{listed}" if needs == "adapts" else "another engine"
        raise UserError(
            f"parameter updater {config.param!r} cannot train on engine {config.engine!r}, whose weights are fixed; "
            f"use {able}, or --param none"
        )


def sampling_of(config: RunConfig, brief: Brief) -> Sampling:
    """The run's sampling; the task says how long an answer may be where the user does not."""
    data = config.sampling.model_dump()
    data["max_new_tokens"] = data["max_new_tokens"] or brief.max_new_tokens
    return Sampling(**data)


def make_planner(
    config: RunConfig,
    task: Task,
    engine: Engine,
    parts: tuple[ParameterUpdater, ContextUpdater],
    services: RunServices,
    *,
    probes: bool = True,
) -> Planner:
    """Who plans the batches of a run; what it keeps for the probe at the end is noted in `services`.

    Args:
        config: of the run.
        task: gives examples and episodes.
        engine: as much of it as a plan needs, which is `count_tokens`.
        parts: both updaters.
        services: theirs, with the budget.
        probes: False leaves them out.
    """
    (parameters, contexts), brief = parts, task.brief()
    planner = Planner(
        task, brief, engine, services, sampling_of(config, brief), parameters.answers,
        parameters.common_random_numbers, offers(contexts, Credits), config.rollouts.chunk, config.probe.answers,
        sized_by=str(contexts.sized_by) if offers(contexts, SizedBy) else "",
    )  # fmt: skip
    planner.probe_every = planner.interval(config.probe.every, trains=parameters.population > 0) if probes else 0
    services.reserved_calls = planner.reserved_calls()
    return planner
