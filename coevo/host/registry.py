"""`Registry[T]`: names → factories, with errors that name the culprit and the mend."""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import pydantic

from coevo.errors import CoevoError, PluginError, UserError, did_you_mean
from coevo.host.faults import told
from coevo.host.options import NestedOptions, Option, bare, declared, reminder
from coevo.optional import offers
from coevo.records import Json

T = TypeVar("T")

PROVIDED = frozenset({"services", "brief", "model", "plugins"})
"""Factory parameters that the run fills in; all others are the user's options."""


def require(thing: object, protocol: type, what: str, leave: Collection[str] = ()) -> None:
    """Refuse an object that lacks a member of its Protocol.

    Args:
        thing: a plugin's.
        protocol: that it implements.
        what: whose it is.
        leave: members that it may do without.

    Raises:
        PluginError: which members are missing.
    """
    members = {name for name in (*vars(protocol), *inspect.get_annotations(protocol)) if not name.startswith("_")}
    members -= set(leave)
    missing = sorted(name for name in members if not hasattr(thing, name))
    if missing:
        raise PluginError(f"{what} lacks {', '.join(map(repr, missing))}; see coevo.interfaces.{protocol.__name__}")


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A registered factory and the plugin that brought it."""

    name: str
    factory: Callable[..., T]
    plugin: str
    summary: str


class Registry(Generic[T]):
    """What plugins registered under one kind (`"task"`, `"engine"`, ...).

    Usage, in a plugin::

        @hookimpl
        def register_context_updaters(updaters):
            updaters.register("mine", MyUpdater)

    The factory is a class or function whose keyword parameters are its options; parameters named
    `services`, `brief`, `model` or `plugins` (the run's plugin files) are given by the run.
    """

    def __init__(self, kind: str, guard: Callable[[T, str], T] | None = None) -> None:
        """Makes an empty one.

        Args:
            kind: of what is registered.
            guard: takes what a factory made and whose it is, and gives what is passed on (see `coevo.host.contracts`).
        """
        self.kind = kind
        self._guard = guard
        self.plugin = ""  # whose hook is being called; set by discovery
        self._entries: dict[str, Entry[T]] = {}

    @property
    def short_kind(self) -> str:
        """The kind as `coevo options` takes it."""
        return "param" if self.kind == "parameter updater" else self.kind.partition(" ")[0]

    def register(self, name: str, factory: Callable[..., T], summary: str = "") -> None:
        """Add a factory.

        Raises:
            PluginError: the name is taken, and the message names both plugins; or this is no name, or no factory.
        """
        of = f"plugin {self.plugin!r}" if self.plugin else "a plugin"
        if not isinstance(cast(object, name), str) or not name:
            raise PluginError(f"{of} registers a {self.kind} as {name!r}; expected a name: register('mine', Mine)")
        if not callable(cast(object, factory)):
            raise PluginError(
                f"{of} registers {factory!r} as {self.kind} {name!r}; expected a class or a function that makes one"
            )
        text = summary or (inspect.getdoc(factory) or "").partition("\n")[0]
        entry = Entry(name, factory, self.plugin or getattr(factory, "__module__", "?"), text)
        taken = self._entries.get(name)
        if taken is not None:
            raise PluginError(
                f"{self.kind} {name!r} is registered twice: by plugin {taken.plugin!r} and by plugin "
                f"{entry.plugin!r}; rename one or leave one out with COEVO_PLUGINS"
            )
        self._entries[name] = entry

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(sorted(self._entries.values(), key=lambda e: e.name))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    @property
    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries)

    def entry(self, name: str) -> Entry[T]:
        """Look a name up.

        Raises:
            UserError: no such name, with a did-you-mean.
        """
        if name not in self._entries:
            raise UserError(f"no {self.kind} named {name!r}{did_you_mean(name, self.names)}")
        return self._entries[name]

    def options(self, name: str) -> list[Option]:
        """The options that the factory's signature and docstring declare."""
        return declared(self.entry(name).factory, PROVIDED)

    def defaults(self, name: str) -> dict[str, Any]:
        """Option → what it is where the user says nothing; `inspect.Parameter.empty` of one that has to be given."""
        return {option.name: option.default for option in self.options(name)}

    def nested(self, name: str, *given: str) -> list[Option]:
        """What the options that are tables may hold, named `option.key`.

        A factory may say so (`NestedOptions`).
        """
        factory: object = self.entry(name).factory
        return list(factory.nested_options(*given)) if offers(factory, NestedOptions) else []

    def validate(self, name: str, options: Mapping[str, Json]) -> dict[str, Any]:
        """`options` checked against the factory's signature and converted to its types.

        Raises:
            UserError: an unknown option (did-you-mean) or a value of the wrong type or range.
        """
        known = {option.name: option for option in self.options(name)}
        checked: dict[str, Any] = {}
        for key, value in options.items():
            if key not in known:
                raise UserError(f"{self.kind} {name!r} has no option {key!r}{did_you_mean(key, list(known))}")
            checked[key] = self._check(name, known[key], value)
        missing = [k for k, o in known.items() if o.default is inspect.Parameter.empty and k not in checked]
        if missing:
            raise UserError(
                f"{self.kind} {name!r} needs option {missing[0]!r}; give it with --set {name}.{missing[0]}=…"
            )
        return checked

    def _check(self, name: str, option: Option, value: Json) -> Any:
        where = f"{self.kind} {name!r}: option {option.name!r}"
        what = reminder(option.name, option.help)
        if isinstance(value, float) and not math.isfinite(value) and _is_text(option.annotation):
            value = str(value)  # TOML has a number that is written so, and a command line has no quotes
        self._refuse_nan(where, name, value, what)
        if option.annotation is inspect.Parameter.empty:
            return value
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(option.annotation)
        try:
            checked = adapter.validate_python(value)
            if lost_bool(value, checked):
                raise UserError(f"{where} got {value!r}: input should be a number{what}")
        except pydantic.ValidationError as error:
            said = error.errors()[0]["msg"]
            raise UserError(f"{where} got {value!r}: {said[0].lower()}{said[1:]}{what}") from None
        self._refuse_nan(where, name, checked, what)
        return checked

    def _refuse_nan(self, where: str, name: str, value: object, what: str) -> None:
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(
                f"{where} must be a finite number, got {value}; see: coevo options {self.short_kind} {name}{what}"
            )

    def create(self, name: str, options: Mapping[str, Json], **provided: Any) -> T:
        """Make the object.

        Args:
            name: a registered name.
            options: the user's.
            provided: what the run can give; passed on where the factory asks for it.

        Raises:
            UserError: unknown name or option, wrong value; also what the factory raises as ValueError.
            PluginError: the factory raised something else, or gave nothing.
        """
        factory = self.entry(name).factory
        checked = self.validate(name, options)
        wanted = inspect.signature(factory).parameters
        given = {key: value for key, value in provided.items() if key in wanted}
        who = f"{self.kind} {name!r}"
        try:
            made = factory(**checked, **given)
        except CoevoError:
            raise
        except ValueError as error:
            raise UserError(f"{who}: {error}") from error
        except (Exception, SystemExit) as error:
            raise PluginError(f"{who} cannot be made: {told(error)}") from error
        if made is None:
            raise PluginError(f"{who} cannot be made: its factory gave None; a function must return what it made")
        return made if self._guard is None else self._guard(made, who)


def _is_text(annotation: Any) -> bool:
    """Whether an option takes texts and no numbers."""
    inner = bare(annotation)
    parts = typing.get_args(inner) if typing.get_origin(inner) in (typing.Union, types.UnionType) else (inner,)
    return set(parts) - {type(None)} == {str}


def lost_bool(value: object, checked: object) -> bool:
    """Whether a truth, on its own or within a list or table, was taken for a number."""
    if isinstance(value, bool):
        return isinstance(checked, int | float) and not isinstance(checked, bool)
    if isinstance(value, Mapping) and isinstance(checked, Mapping):
        inner = cast("Mapping[str, object]", checked)
        return any(lost_bool(own, inner.get(key)) for key, own in cast("Mapping[str, object]", value).items())
    if isinstance(value, list) and isinstance(checked, list | tuple):
        pairs = zip(cast("list[object]", value), cast("Sequence[object]", checked), strict=False)
        return any(lost_bool(own, taken) for own, taken in pairs)
    return False
