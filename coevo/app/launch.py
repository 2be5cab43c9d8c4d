"""From a configuration to a finished run: what `coevo run` and `coevo.run(config)` do."""

from __future__ import annotations

import asyncio
import datetime
import os
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

from coevo.app import permission
from coevo.app.affording import check_first_batch, check_tokens
from coevo.app.blueprint import DATE, Blueprint
from coevo.app.inputs import changes, not_loaded, taken
from coevo.app.observers import Audience, Observers, make_loggers
from coevo.app.parts import local_files, make_planner
from coevo.app.record import Inputs, begin, settle
from coevo.errors import CoevoError, PluginError, RunError, RunInterrupted, UserError
from coevo.host import discovery
from coevo.host.config import RunConfig, build, plugin_files
from coevo.host.discovery import Plugins, Registries
from coevo.interfaces import Engine, Task
from coevo.loop.collector import Collector
from coevo.loop.evolve import Loop
from coevo.loop.services import Budget, RunServices
from coevo.machine.interrupts import ending, staying, terminating
from coevo.optional import Starts, Wraps, closed, described, drives_itself, offers
from coevo.records import Json
from coevo.reports import RunInfo
from coevo.runs import holdout
from coevo.runs.folder import RunFolder, check_free
from coevo.runs.journal import History
from coevo.runs.store import RunStore
from coevo.runs.summary import summarize
from coevo.text import is_terminal


def run(config: RunConfig | Mapping[str, Json] | None = None, plugins: Plugins | None = None) -> dict[str, Json]:
    """Start a new run and see it to its end; returns what `coevo show --json` prints.

    Args:
        config: the configuration, or its TOML data; None takes the defaults.
        plugins: already loaded plugins; loaded from the configuration otherwise.

    Raises:
        UserError: something cannot be done as asked; nothing was written.
        RunInterrupted: Ctrl-C or SIGTERM; the run can be resumed.
        RunError: the run failed; it can be resumed.
    """
    plugins = plugins or discovery.load(_extra_files(config))
    registries = plugins.registries()
    known = isinstance(config, RunConfig)
    blueprint = (Blueprint(config, registries).checked() if known else Blueprint.of(config or {}, registries)).lasting()
    loggers = make_loggers(blueprint)
    check_free(blueprint.run_path())
    # Before the model loads: of what this process has read by now.
    inputs = Inputs(taken(blueprint, plugins))
    # All parts of the run take one day for today, and where it is in the prompts, so does the run when it is resumed.
    pinned = blueprint.dated(datetime.date.today().isoformat())
    with staying(), parts(pinned) as (task, engine):
        blueprint, folder = _claim(pinned if DATE in described(engine, task) else blueprint)
        inputs = Inputs({**inputs.now, "config": blueprint.config.to_toml_data()})
        try:
            with folder.lock():
                _drive(blueprint, task, engine, folder, History(), inputs, Audience(plugins, loggers))
        except UserError:
            # What could not be done as asked leaves nothing behind, if not a rollout was made.
            if not folder.has_rollouts():
                shutil.rmtree(folder.path)
            raise
    return summarize(folder)


def _claim(blueprint: Blueprint) -> tuple[Blueprint, RunFolder]:
    """Make the run's folder; where nobody chose its name, another run that took it first is no obstacle."""
    while True:
        path = blueprint.run_path()
        named = blueprint.changed(name=path.name, runs=str(path.parent))
        try:
            folder = RunFolder.create(path, named.config.to_toml_data())
        except UserError:
            if blueprint.config.name is not None or blueprint.run_path() == path:
                raise
        else:
            permission.begun(folder)
            return named, folder


def resume(
    run_name: str,
    runs: str = "runs",
    plugins: Plugins | None = None,
    quiet: bool = False,
    accept_changes: bool = False,
) -> dict[str, Json]:
    """Go on with an interrupted or killed run; returns what `coevo show --json` prints.

    Args:
        run_name: its name, or its folder.
        runs: where runs are looked for by name.
        plugins: already loaded ones; loaded from the run's configuration otherwise.
        quiet: without loggers.
        accept_changes: go on although something that its results depend on is not as it was when it began.

    Raises:
        UserError: no such run, another process has it, or it would mix two versions of something.
        CheckFailedError: the journal was changed, or the weights that it rebuilds are not those it names.
    """
    folder = RunFolder.find(run_name, runs)
    data = folder.config()
    if plugins is None:
        permission.allowed(folder)
        plugins = discovery.load(_extra_files(data))
    if lacking := not_loaded(folder.info().get("inputs", {}), plugins):
        raise UserError(f"run {folder.name!r} began with {lacking}")
    registries = plugins.registries()
    config = build(data, registries.names)
    blueprint = Blueprint(config.model_copy(update={"loggers": ()}) if quiet else config, registries).checked()
    loggers = make_loggers(blueprint)
    with folder.lock():
        folder.journal.repair()
        history = folder.journal.history()
        if not history.finished:
            now = taken(blueprint, plugins)
            inputs = Inputs(now, _changed(folder, now, registries, accept_changes), accept_changes)
            with staying(), parts(blueprint) as (task, engine):
                _drive(blueprint, task, engine, folder, history, inputs, Audience(plugins, loggers))
    return summarize(folder)


def _changed(folder: RunFolder, now: Mapping[str, Json], registries: Registries, accept: bool) -> Sequence[str]:
    """What has changed since the run began, and the user goes on with; the rest of what has is said.

    A run that has no answer yet has nothing to mix, and begins with what is there now.
    """
    if not folder.has_rollouts():
        return ()
    found = changes(folder.info().get("inputs", {}), now, registries.loggers)
    settle(folder, found.mixing, accept)
    for note in found.notes:
        print(f"coevo: note: {note}", file=sys.stderr)
    return found.mixing


def _extra_files(config: RunConfig | Mapping[str, Json] | None) -> Sequence[str]:
    return config.plugins if isinstance(config, RunConfig) else plugin_files(config or {})


@contextmanager
def parts(blueprint: Blueprint) -> Generator[tuple[Task, Engine]]:
    """Task and engine, started and closed. The task first: its sandbox wants no threads."""
    with ExitStack() as stack:
        config, task = blueprint.config, blueprint.make_task()
        _closing(stack, task)
        # What updaters and models refuse is refused now, not after a sandbox and a model were started.
        services = RunServices(config.seed, blueprint.run_path())
        parameters, contexts = blueprint.make_updaters(task.brief(), services)
        blueprint.check_needs(parameters)
        blueprint.check_model()
        check_tokens(blueprint, task)
        check_first_batch(blueprint, task, (parameters, contexts), services)
        if offers(task, Starts):
            task.start()
        if config.loggers and is_terminal(sys.stderr):
            # Nothing else is shown for the seconds (or minutes, for large models) that this takes.
            print(
                f"coevo: starting engine {config.engine!r} with model {config.model!r} …", file=sys.stderr, flush=True
            )
        engine = blueprint.make_engine(plugins=local_files(config))
        _closing(stack, engine)
        yield task, engine


def _closing(stack: ExitStack, part: object) -> None:
    """Close a part in the end; by then the run is on disk, so what fails there changes nothing about it."""

    def end() -> None:
        try:
            closed(part)
        except CoevoError as error:
            print(f"coevo: note: {error}; what was done before is kept", file=sys.stderr)

    stack.callback(end)


def _drive(
    blueprint: Blueprint,
    task: Task,
    engine: Engine,
    folder: RunFolder,
    history: History,
    inputs: Inputs,
    audience: Audience,
) -> None:
    config = blueprint.config
    with ExitStack() as stack:
        scorers = ThreadPoolExecutor(max_workers=2 * (os.cpu_count() or 1), thread_name_prefix="score")
        stack.enter_context(ending(scorers))
        brief, store = task.brief(), RunStore(folder, task, folder.unbooked(history))
        services = RunServices(
            config.seed,
            folder.path,
            Budget(config.calls, config.tokens),
            ledger=history.ledger,
            adapted=history.adapted,
            unbooked=store.unbooked,
        )
        parameters, contexts = blueprint.make_updaters(brief, services)
        blueprint.check_needs(parameters, engine)
        begin(folder, task, engine, history, inputs)
        if history.states:
            parameters.load_state_dict(history.states["parameters"])
            contexts.load_state_dict(history.states["contexts"])
        planner = make_planner(blueprint, task, engine, (parameters, contexts), services)
        planner.probed = history.probed
        wrap = contexts.wrap if offers(contexts, Wraps) else None
        collector = Collector(
            engine=engine, task=task, sampling=planner.sampling, scorers=scorers, wrap=wrap,
            retries=config.rollouts.retries,
        )  # fmt: skip
        info = _info(config, folder, task, engine, history)
        observers = Observers(audience, config, folder, engine)
        loop = Loop(
            task=task,
            brief=brief,
            engine=engine,
            parameters=parameters,
            contexts=contexts,
            planner=planner,
            collector=collector,
            services=services,
            store=store,
            observers=observers,
            generations=config.generations,
            best=history.best,
            reports=history.reports(),
        )
        with terminating(f"coevo: {_how_to_go_on(store)}"):
            _run_loop(loop, store, observers, info, history, config.judge_best)


def _info(config: RunConfig, folder: RunFolder, task: Task, engine: Engine, history: History) -> RunInfo:
    brief = task.brief()
    best, baseline = brief.best_known(), brief.baseline()
    return RunInfo(
        name=folder.name,
        path=str(folder.path),
        config=config.to_toml_data(),
        first_generation=history.generation,
        generations=config.generations,
        direction=brief.direction,
        reference=None if best is None else (best.name, best.value),
        baseline=None if baseline is None else (baseline.name, baseline.value),
        failure=None if brief.failure == "below" else float(brief.failure),
        machine=described(engine, task),
    )


def _how_to_go_on(store: RunStore) -> str:
    return f"interrupted; go on with: coevo resume {store.folder.address}"


def _note_failure(store: RunStore, error: BaseException) -> None:
    # On a full disk there is no room for the note either; the run then counts as interrupted.
    with suppress(OSError):
        store.stop("failed", " ".join(str(error).split())[:500])


def _judge_best(loop: Loop, store: RunStore) -> None:
    """Judge the best program of a search on the splits that it was not made for."""
    if loop.best is None or loop.brief.hole == "none" or drives_itself(loop.task):
        return
    rollout = holdout.find(store.folder, loop.best)
    splits = holdout.judge(loop.task, rollout, wrapped=loop.collector.wrap is not None)
    lines = [holdout.told(split, verdict) for split, verdict in splits.items()]
    store.save_best(loop.best, rollout, splits, lines)


def _run_loop(
    loop: Loop, store: RunStore, observers: Observers, info: RunInfo, history: History, judge_best: bool
) -> None:
    failure: BaseException | None = None
    observers.run_started(info)
    try:
        try:
            reason = asyncio.run(loop.run(history.generation, history.batch))
        except asyncio.CancelledError as error:  # an interruption is a KeyboardInterrupt, so this is nobody else's
            raise PluginError("a plugin cancelled the asyncio task of the run") from error
        if loop.planner.untrained:
            print(f"coevo: note: {loop.planner.untrained}", file=sys.stderr)
        if judge_best:
            _judge_best(loop, store)
        store.stop(reason, generation=loop.services.generation, batch=loop.services.batch)
    except KeyboardInterrupt:
        store.stop("interrupted")
        failure = RunInterrupted(_how_to_go_on(store))
        raise failure from None
    except OSError as error:
        failure = RunError(f"writing failed: {error}; mend it, then go on with: coevo resume {store.folder.address}")
        _note_failure(store, failure)
        raise failure from error
    except RunError as error:
        failure = RunError(f"{error}; go on with: coevo resume {store.folder.address}")
        _note_failure(store, error)
        raise failure from error
    except PluginError as error:
        failure = error
        _note_failure(store, error)
        if store.folder.has_rollouts():
            again = f"coevo resume {store.folder.address} --accept-changes"
            failure = PluginError(f"{error}; once that is mended, go on with: {again}")
        raise failure from error
    except BaseException as error:
        failure = error
        _note_failure(store, error)
        raise
    finally:
        observers.run_finished(info, failure)
