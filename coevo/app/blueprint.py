"""A configuration and what its names mean: checked once, then asked for everything that a run is made from."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from coevo.errors import UserError
from coevo.host.config import RunConfig, build, problem_name
from coevo.host.discovery import Registries
from coevo.interfaces import Brief, ContextUpdater, Engine, ParameterUpdater, Task
from coevo.loop.plan import MOST_ANSWERS
from coevo.loop.services import RunServices, Shown
from coevo.machine.places import expanded
from coevo.models.catalogue import ALIASES, resolve
from coevo.optional import AdaptsIn, ChecksModel, always_adapts, never_adapts, offers
from coevo.records import Json, Sampling

DATE = "date"
"""The option of engines whose chat template may print today's, and what they then describe themselves with."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A run's configuration with the registries that its names are looked up in.

    Usage:

        blueprint = Blueprint.of({"task": "tsp_construct"}, plugins.registries())
        task, engine = blueprint.make_task(), blueprint.make_engine()
    """

    config: RunConfig
    registries: Registries

    @classmethod
    def of(cls, data: Mapping[str, Json], registries: Registries) -> Blueprint:
        """Check every key, name and option of TOML data before anything is started.

        Raises:
            UserError: the first that is wrong.
        """
        return cls(build(data, registries.names), registries).checked()

    def checked(self) -> Blueprint:
        """Itself, if every name and option is right.

        Raises:
            UserError: the first that is wrong.
        """
        config, registries = self.config, self.registries
        registries.tasks.validate(config.task, self.options(config.task))
        registries.engines.validate(config.engine, self.options(config.engine))
        registries.context_updaters.validate(config.context, self.options(config.context))
        registries.parameter_updaters.validate(config.param, self.parameter_options())
        for name in config.loggers:
            registries.loggers.validate(name, self.options(name))
        if len(set(config.loggers)) < len(config.loggers):
            raise UserError(f"loggers got {list(config.loggers)!r}: each may be named once")
        chosen = {config.task, config.engine, config.context, config.param, *config.loggers}
        for table in config.options:
            # A logger may have options and be left out by --quiet.
            if table not in chosen and table not in registries.loggers:
                raise UserError(
                    f"options are given for {table!r}, which this run does not use; it uses {', '.join(sorted(chosen))}"
                )
        return self

    def changed(self, **changes: Any) -> Blueprint:
        """The same with other values of keys."""
        return Blueprint(self.config.model_copy(update=changes), self.registries)

    def options(self, name: str) -> dict[str, Json]:
        """What the user said of a part."""
        return dict(self.config.options.get(name, {}))

    def parameter_options(self) -> dict[str, Json]:
        """Options of the parameter updater; `--population` is its option of that name."""
        config = self.config
        # One table for two updaters of one name (`none`): it is the context updater's.
        options: dict[str, Json] = {} if config.param == config.context else self.options(config.param)
        if config.population is not None:
            known = [option.name for option in self.registries.parameter_updaters.options(config.param)]
            if "population" not in known:
                raise UserError(f"parameter updater {config.param!r} has no population; leave out --population")
            options["population"] = config.population
        return options

    def make_task(self) -> Task:
        """The task, not started."""
        return self.registries.tasks.create(self.config.task, self.options(self.config.task))

    def make_engine(self, **provided: Any) -> Engine:
        """The engine with its model; `provided` is what the run can give besides."""
        config = self.config
        return self.registries.engines.create(
            config.engine, self.options(config.engine), model=config.model, **provided
        )

    def make_updaters(self, brief: Brief, services: RunServices) -> tuple[ParameterUpdater, ContextUpdater]:
        """Both updaters, and the parts of `services` that depend on them.

        Raises:
            UserError: one of them refuses its options or the task.
        """
        config, shown = self.config, Shown(services)
        parameters = self.registries.parameter_updaters.create(
            config.param, self.parameter_options(), services=shown, brief=brief
        )
        services.batch_answers = parameters.population * parameters.answers
        services.member_answers = parameters.answers if parameters.population else 0
        if services.batch_answers > MOST_ANSWERS:
            raise UserError(
                f"population {parameters.population} with {parameters.answers} answers a member makes "
                f"{services.batch_answers:,} rollouts a batch; expected at most {MOST_ANSWERS:,}"
            )
        contexts = self.registries.context_updaters.create(
            config.context, self.options(config.context), services=shown, brief=brief
        )
        # An updater that draws its operators adapts in a number of batches that is known on average only.
        adapting = contexts.adapting_batches if offers(contexts, AdaptsIn) else 1
        services.planned = round(config.generations * float(adapting))
        return parameters, contexts

    def sampling(self, brief: Brief) -> Sampling:
        """The run's sampling; the task says how long an answer may be where the user does not."""
        data = self.config.sampling.model_dump()
        data["max_new_tokens"] = data["max_new_tokens"] or brief.max_new_tokens
        return Sampling(**data)

    def check_model(self) -> None:
        """Refuse a model that the engine could not load before anything is started.

        Raises:
            UserError: what is wrong with it.
        """
        check_model(self.registries, self.config.engine, self.config.model)

    def check_needs(self, parameters: ParameterUpdater, engine: Engine | None = None) -> None:
        """Refuse an engine that cannot do what the parameter updater needs.

        Without `engine` only what its factory says is known (`SaysWhetherAdapts`): so `--param es` on an engine for
        API models is refused before it asks anything.

        Raises:
            UserError: what to use instead.
        """
        config, engines, needs = self.config, self.registries.engines, parameters.needs
        if engine is None:
            unable = needs == "adapts" and never_adapts(engines.entry(config.engine).factory)
        else:
            able = {"adapts": engine.capabilities.adapts, "gradients": engine.capabilities.gradients}
            unable = not able.get(needs, True)
        if unable:
            names = [entry.name for entry in engines if always_adapts(entry.factory)]
            listed = f" ({', '.join(names)})" if names else ""
            other = f"an engine that adapts{listed}" if needs == "adapts" else "another engine"
            raise UserError(
                f"parameter updater {config.param!r} cannot train on engine {config.engine!r}, whose weights are "
                f"fixed; use {other}, or --param none"
            )

    def inner_engine(self) -> tuple[str, dict[str, Json]]:
        """The engine that serves the model, and its options: of a pool, that of its workers.

        A pool is an engine with an option `engine`, a name, and an option `options`.
        """
        config = self.config
        defaults = self.registries.engines.defaults(config.engine)
        given = {**defaults, **self.options(config.engine)}
        name, options = given.get("engine"), cast(object, given.get("options") or {})
        if isinstance(name, str) and "options" in defaults and isinstance(options, dict):
            return name, cast(dict[str, Json], options)
        return config.engine, self.options(config.engine)

    def inner_factory(self) -> object:
        """The factory of `inner_engine`; None where there is no engine of that name."""
        name, _ = self.inner_engine()
        return self.registries.engines.entry(name).factory if name in self.registries.engines else None

    def dated(self, date: str) -> Blueprint:
        """With a date for the engine that serves the model, where it takes one and has none yet."""
        config, engines = self.config, self.registries.engines
        inner, given = self.inner_engine()
        if inner not in engines or DATE not in {option.name for option in engines.options(inner)}:
            return self
        dated = {DATE: date, **given}
        table = dated if inner == config.engine else {**self.options(config.engine), "options": dated}
        return self.changed(options={**config.options, config.engine: table})

    def date(self) -> str:
        """What the engine that serves the model is told of the day, empty where it is told nothing."""
        known = self.config.engine in self.registries.engines
        return str(self.inner_engine()[1].get(DATE) or "") if known else ""

    def lasting(self) -> Blueprint:
        """With full paths of folders and files, so that the run can be read, replayed and resumed from any folder."""
        config, folder = self.config, expanded(self.config.model)
        own_names = offers(self.inner_factory(), ChecksModel)
        as_is = own_names or config.model in ALIASES or not os.path.isfile(folder / "config.json")
        model = config.model if as_is else str(folder.absolute())
        return self.changed(model=model, plugins=tuple(map(os.path.abspath, config.plugins)))

    def run_path(self) -> Path:
        """The folder of a new run; without a name the first free `<task>-<param>-<context>-<number>`."""
        config, runs = self.config, Path(self.config.runs)
        if config.name is not None:
            last = config.name.rstrip(os.sep).rpartition(os.sep)[2]
            if last != last.strip() or last.startswith("-") or last in ("", ".", ".."):
                raise UserError(
                    f"--name got {config.name!r}: expected a name such as 'first', without spaces around it"
                )
            return Path(config.name) if os.sep in config.name else runs / config.name
        task = problem_name(config.task, config.options)
        number = 1
        while os.path.lexists(path := runs / f"{task}-{config.param}-{config.context}-{number}"):
            number += 1
        return path


def check_model(registries: Registries, engine: str, name: str) -> None:
    """Refuse a model that an engine could not load.

    Names are the engine's to know (`ChecksModel`). Without that an engine that cannot do without a model, or is given a
    path, loads what `coevo.models.catalogue` resolves.

    Raises:
        UserError: what is wrong with it.
    """
    factory = registries.engines.entry(engine).factory
    model = inspect.signature(factory).parameters.get("model")
    if offers(factory, ChecksModel):
        factory.check_model(name)
    elif model is not None and (model.default is model.empty or os.sep in name or os.path.exists(name)):
        resolve(name)
