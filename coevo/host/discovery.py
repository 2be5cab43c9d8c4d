"""From installed plugins to registries: entry points, local files, and `COEVO_PLUGINS`."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import zlib
from asyncio import CancelledError
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib.metadata import Distribution, EntryPoint, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pluggy

from coevo.errors import CoevoError, PluginError, UserError, did_you_mean
from coevo.files import check_source
from coevo.host import consent, contracts, hookspecs
from coevo.host.faults import told
from coevo.host.registry import Registry
from coevo.host.source import Source

if TYPE_CHECKING:
    from coevo.interfaces import ContextUpdater, Engine, ParameterUpdater, Task

GROUP = "coevo"
LOCAL_PLUGIN = "coevo_plugin.py"
LOCAL_MODULE = "coevo_local_"
"""How the names of modules begin that are plugin files."""
Local: TypeAlias = Literal["ask", "known", "never"]
"""Whether the plugin file of the working folder is loaded: once the user wants it, only where that is known, or not."""
_NEAR = 0.85
"""Likeness from which on a name is taken for that of a hook."""


WITHHELD = "it is code found in this folder that you have never run"
"""Why the plugin file of the working folder was left out."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin that was found.

    Attributes:
        name: of the entry point, or of the file.
        source: distribution and version, or the file's path.
        error: why it did not load, empty if it did.
        notes: what its author may have meant otherwise.
    """

    name: str
    source: str
    error: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Registries:
    """Everything that plugins registered, by kind."""

    tasks: Registry[Task] = field(default_factory=lambda: Registry("task", contracts.task))
    engines: Registry[Engine] = field(default_factory=lambda: Registry("engine", contracts.engine))
    parameter_updaters: Registry[ParameterUpdater] = field(
        default_factory=lambda: Registry("parameter updater", contracts.parameter_updater)
    )
    context_updaters: Registry[ContextUpdater] = field(
        default_factory=lambda: Registry("context updater", contracts.context_updater)
    )
    loggers: Registry[object] = field(default_factory=lambda: Registry[object]("logger"))

    @property
    def names(self) -> list[str]:
        """Names of all kinds, sorted: those that may have a table of options in a configuration."""
        kinds = (self.tasks, self.engines, self.parameter_updaters, self.context_updaters, self.loggers)
        return sorted({name for registry in kinds for name in registry.names})


@dataclass(slots=True)
class Plugins:
    """The plugin manager with what it found.

    Raises (from `registries`):
        PluginError: a misspelt hook, a duplicate name, a hook that raises.
    """

    manager: pluggy.PluginManager
    found: list[Plugin] = field(default_factory=list[Plugin])

    @property
    def broken(self) -> list[Plugin]:
        """Plugins that did not load."""
        return [plugin for plugin in self.found if plugin.error]

    @property
    def withheld(self) -> bool:
        """Whether the plugin file of the working folder was left out, because the user has not said to run it."""
        return any(plugin.error == WITHHELD for plugin in self.found)

    def registries(self) -> Registries:
        """Let every plugin register.

        Raises:
            PluginError: a duplicate name, or a hook that raises; names the plugin.
        """
        out = Registries()
        rounds: list[tuple[str, str, Registry[Any]]] = [
            ("register_tasks", "tasks", out.tasks),
            ("register_engines", "engines", out.engines),
            ("register_parameter_updaters", "updaters", out.parameter_updaters),
            ("register_context_updaters", "updaters", out.context_updaters),
            ("register_loggers", "loggers", out.loggers),
        ]
        for hook, argument, registry in rounds:
            for impl in _implementations(self.manager, hook):
                registry.plugin = impl.plugin_name
                try:
                    with redirect_stdout(sys.stderr):
                        impl.function(**({argument: registry} if argument in impl.argnames else {}))
                except CoevoError:
                    raise
                except (Exception, SystemExit) as error:
                    raise PluginError(
                        f"plugin {impl.plugin_name!r}: {hook} raised {told(error)}; leave it out with COEVO_PLUGINS"
                    ) from error
        return out


def _implementations(manager: pluggy.PluginManager, hook: str) -> list[pluggy.HookImpl]:
    # First registered first: a duplicate is blamed on the newcomer.
    return list(getattr(manager.hook, hook).get_hookimpls())


def notify(
    manager: pluggy.PluginManager, hook: str, on_error: Callable[[str, BaseException], None], **arguments: object
) -> None:
    """Call an observer hook on every plugin; one that raises is reported by name and the rest go on."""
    for impl in _implementations(manager, hook):
        try:
            impl.function(**{name: arguments[name] for name in impl.argnames})
        except (Exception, SystemExit, CancelledError) as error:  # noqa: BLE001 - a stranger's observer must not end a run
            on_error(impl.plugin_name, error)


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the hooks and no plugin."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def load(extra_files: Iterable[str | Path] = (), folder: Path | None = None, local: Local = "ask") -> Plugins:
    """Find and load plugins: entry points of group `coevo`, `coevo_plugin.py` in `folder`, `extra_files`.

    `COEVO_PLUGINS=es,eoh` limits entry points to those names. A third-party plugin that cannot be imported
    or whose hooks are wrong is recorded in `found` with its error; a plugin that the user named on the
    command line raises.

    Args:
        extra_files: files that the user named, or has said to run.
        folder: the working folder by default.
        local: whether the plugin file of the folder is loaded; where it is only not known to be wanted, it is recorded
            in `found` as left out.

    Raises:
        PluginError: a file given by the user is missing or broken; `COEVO_PLUGINS` names an unknown plugin.
        UserError: the folder's plugin file is not wanted, or there is nobody to ask.
    """
    # What a plugin prints while it is imported is no output of a command.
    with redirect_stdout(sys.stderr):
        return _load(extra_files, folder, local)


def _load(extra_files: Iterable[str | Path], folder: Path | None, local: Local) -> Plugins:
    manager = new_manager()
    plugins = Plugins(manager)
    points = entry_points()
    wanted = [n.strip() for n in os.environ.get("COEVO_PLUGINS", "").split(",") if n.strip()]
    for name in wanted:
        if name not in points:
            raise PluginError(f"COEVO_PLUGINS names {name!r}, which is not installed{did_you_mean(name, list(points))}")
    for name, (point, distribution) in points.items():
        if not wanted or name in wanted:
            _load_entry_point(plugins, name, point, distribution)
    named = [Path(f) for f in extra_files]
    found = _local_file(plugins, folder or Path.cwd(), local, named)
    asked = {path.resolve() for path in found} - {path.resolve() for path in named}
    files = [*found, *named]
    for path in {path.resolve(): path for path in files}.values():
        name = path.stem if manager.get_plugin(path.stem) is None else str(path)
        _register(plugins, name, _import_file(path, path.resolve() in asked), str(path))
    return plugins


def _local_file(plugins: Plugins, folder: Path, local: Local, named: Sequence[Path]) -> list[Path]:
    """The plugin file of a folder, if there is one and it is to be loaded. One that was named needs no word."""
    path = folder / LOCAL_PLUGIN
    if local == "never" or not path.is_file():
        return []
    if path.resolve() in {file.resolve() for file in named}:
        return [path]
    try:
        content = Source.read(path).signature
    except OSError:
        return [path]  # what is wrong with it is said where it is loaded
    if local == "known" and not consent.is_known(path, content) and not consent.trusted():
        plugins.found.append(Plugin(path.stem, str(path), WITHHELD))
        return []
    mend = f"{consent.FLAG}, or --plugin {LOCAL_PLUGIN}, or {consent.VARIABLE}=1 in the environment"
    consent.obtain(path, content, f"the plugin file {str(path)!r} of this folder", mend)
    return [path]


def wanted_local(folder: Path) -> list[Path]:
    """The plugin file of a folder where the user is known to want it: for other processes of a run."""
    path = folder / LOCAL_PLUGIN
    return [path] if path.is_file() and consent.is_known(path, Source.read(path).signature) else []


def entry_points() -> dict[str, tuple[EntryPoint, Distribution]]:
    """Entry points of group `coevo` by name. Duplicate metadata of one distribution counts once.

    Raises:
        PluginError: two distributions use the same name.
    """
    points: dict[str, tuple[EntryPoint, Distribution]] = {}
    for distribution in distributions():
        for point in distribution.entry_points.select(group=GROUP):
            known = points.get(point.name)
            if known is None:
                points[point.name] = (point, distribution)
            elif known[1].metadata["Name"] != distribution.metadata["Name"]:
                raise PluginError(
                    f"plugin name {point.name!r} is used by two distributions: {known[1].metadata['Name']!r} and "
                    f"{distribution.metadata['Name']!r}; uninstall one"
                )
    return dict(sorted(points.items()))


def _load_entry_point(plugins: Plugins, name: str, point: EntryPoint, distribution: Distribution) -> None:
    source = f"{distribution.metadata['Name']} {distribution.version}"
    try:
        module = point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever an import raises must not disable coevo
        plugins.found.append(Plugin(name, source, f"{type(error).__name__}: {error}"))
        return
    try:
        _register(plugins, name, module, source)
    except PluginError as error:
        plugins.found.append(Plugin(name, source, str(error)))


def _register(plugins: Plugins, name: str, module: object, source: str) -> None:
    manager = plugins.manager
    check_signatures(module, f"plugin {name!r} ({source})")
    try:
        manager.register(module, name)
    except (pluggy.PluginValidationError, ValueError) as error:
        if manager.get_plugin(name) is module:
            manager.unregister(module)
        raise PluginError(f"plugin {name!r} ({source}): {_one_line(error)}") from error
    check_hooks(manager, module, f"plugin {name!r} ({source})")
    plugins.found.append(Plugin(name, source, notes=tuple(unmarked(module))))


def check_signatures(plugin: object, who: str) -> None:
    """Refuse a plugin, before it is registered, with a hook that could not be called.

    Raises:
        PluginError: which, and how it is written.
    """
    for name in _hooks():
        hook = getattr(plugin, name, None)
        if not inspect.isroutine(hook) or not hasattr(hook, f"{hookspecs.PROJECT}_impl"):
            continue
        known = list(inspect.signature(getattr(hookspecs, name)).parameters)
        right = f"write it as: def {name}({', '.join([*['self'] * inspect.ismethod(hook), *known])})"
        if inspect.iscoroutinefunction(hook):
            raise PluginError(f"{who}: hook {name}() is an async function; {right}")
        for parameter in inspect.signature(hook).parameters.values():
            filled = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            if parameter.name not in known and parameter.default is parameter.empty and not filled:
                raise PluginError(f"{who}: hook {name}() has no argument {parameter.name!r}; {right}")


def check_hooks(manager: pluggy.PluginManager, plugin: object, who: str) -> None:
    """Refuse a plugin that was registered and has a hook that there is not; it is registered no more.

    Raises:
        PluginError: which, with a did-you-mean.
    """
    misspelt = _misspelt_hook(manager, plugin)
    if misspelt:
        manager.unregister(plugin)
        raise PluginError(f"{who}: unknown hook {misspelt!r}{did_you_mean(misspelt, _hooks())}")


def unmarked(plugin: object) -> list[str]:
    """What looks like a hook and is none, for want of the mark: it would never be called, without a word."""
    found: list[str] = []
    words = {word for hook in _hooks() for word in hook.split("_")}
    for name in dir(plugin):
        # Most names are like no hook, and are not worth a comparison with each.
        if name.startswith("_") or words.isdisjoint(name.split("_")):
            continue
        meant = next(iter(difflib.get_close_matches(name, _hooks(), n=1, cutoff=_NEAR)), None)
        thing = getattr(plugin, name, None) if meant else None
        if meant is None or not inspect.isroutine(thing) or hasattr(thing, f"{hookspecs.PROJECT}_impl"):
            continue
        whose = "" if meant == name else f" (did you mean {meant!r}?)"
        found.append(f"{name}() looks like a hook{whose} and is never called: it has no @coevo.hookimpl above it")
    return found


def _hooks() -> list[str]:
    return [n for n in vars(hookspecs) if hasattr(getattr(hookspecs, n), f"{hookspecs.PROJECT}_spec")]


def _misspelt_hook(manager: pluggy.PluginManager, module: object) -> str:
    try:
        manager.check_pending()
    except pluggy.PluginValidationError:
        for caller in manager.get_hookcallers(module) or []:
            if not caller.has_spec():
                return caller.name
        raise
    return ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _import_file(path: Path, asked: bool = False) -> object:
    """Import a plugin file; what the user was asked about is imported only as it was then."""
    if path.is_dir():
        raise PluginError(
            f"plugin {str(path)!r} is a folder; --plugin takes a Python file that implements hooks, such as "
            f"{str(path / '__init__.py')!r}"
        )
    if not path.is_file():
        raise PluginError(f"no plugin file {str(path)!r}; --plugin takes a Python file that implements hooks")
    if path.suffix != ".py":
        raise PluginError(f"{str(path)!r} is no Python file; --plugin takes one that implements hooks")
    try:
        check_source(path)
    except UserError as error:
        raise PluginError(f"plugin file {error}") from None
    name = f"{LOCAL_MODULE}{path.stem}"
    known = sys.modules.get(name)
    if known is not None and Path(str(known.__file__)).resolve() != path.resolve():
        # Two files of one name are two modules: what looks a class up by its module finds its own.
        name = f"{name}_{zlib.crc32(os.fsencode(path.resolve())):08x}"
    try:
        source = Source.read(path)
        if asked and not consent.is_known(path, source.signature):
            raise PluginError(f"plugin file {str(path)!r} has changed since it was agreed to; start again")
        consent.remember(path, source.signature)
        return source.run(name)
    except CoevoError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"plugin file {str(path)!r} does not import: {told(error)}") from error
