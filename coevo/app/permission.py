"""Whether a run may be gone on with: what its configuration names is run, and reached, by whoever resumes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from coevo.host import consent, discovery
from coevo.host.config import plugin_files
from coevo.host.hashes import contents
from coevo.host.source import Source
from coevo.records import Json
from coevo.runs.codec import dumps
from coevo.runs.folder import RunFolder

_OWN = ("name", "runs")
"""Keys that name nothing but the run itself."""
_ADDRESSES = ("url", "address")
_VARIABLE = "_env"


def begun(folder: RunFolder) -> None:
    """Note that this user began a run, and so may go on with it, and edit his own code."""
    consent.remember(folder.path, dumps(_named(folder.config())).encode())


def allowed(folder: RunFolder, command: str = "resume") -> None:
    """Refuse a run that this user did not begin here, unless it is wanted.

    Raises:
        UserError: it is not wanted, or there is nobody to ask; or what it names is too much to be known again.
    """
    config = folder.config()
    named = _named(config)
    if consent.is_known(folder.path, dumps(named).encode()):
        return
    code = _code(config)
    told = [*(f"runs {place!r}" for place in code), *_reached(config)]
    said = f" (it {'; '.join(told)})" if told else ""
    what = f"what config.toml of run {folder.name!r} names{said}"
    content = dumps({**named, "code": code}).encode()
    consent.obtain(folder.path, content, what, f"coevo {command} {folder.address} {consent.FLAG}")


def _named(config: Mapping[str, Json]) -> dict[str, Json]:
    """Every text of a configuration, since each may name code or another machine; numbers are free to be edited."""
    plugin_files(config)
    return {key: value for key, value in _texts(config) if key not in _OWN}


def _texts(value: Json, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping | list):
        table = cast(Any, value)
        for inner, each in table.items() if isinstance(value, Mapping) else enumerate(table):
            yield from _texts(each, f"{key}.{inner}" if key else str(inner))


def _code(config: Mapping[str, Json]) -> dict[str, Json]:
    """The code that a configuration names, by its content: plugin files, and whatever of its texts is a path."""
    found: dict[str, Json] = {path: _content(Path(path)) for path in plugin_files(config)}
    for key, text in _named(config).items():
        # A model's folder has no code that is run, and what it holds is compared with the run's own note of it.
        if key != "model" and not key.endswith(".model") and text not in found and (path := _path(text)):
            found[text] = contents(path) if path.is_dir() else _content(path)
    return found


def _path(text: str) -> Path | None:
    """The file or folder that a text names by its path; a mere word is none."""
    try:
        path = Path(text).expanduser()
        return path if len(path.parts) > 1 and path.exists() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _content(path: Path) -> str:
    try:
        return consent.digest(Source.read(path).signature)
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _reached(config: Mapping[str, Json]) -> Iterator[str]:
    """In words, where the engine of a configuration would connect to, and which variables it would send there."""
    registries = discovery.load(local="never").registries()
    name = str(config.get("engine", ""))
    tables = {name: config.get(name, {})}
    if isinstance(table := tables[name], dict) and isinstance(inner := cast(Any, table).get("engine"), str):
        tables[inner] = cast(Any, table).get("options") or {}
    for engine, given in tables.items():
        known = registries.engines.options(engine) if engine in registries.engines else ()
        defaults = {option.name: option.default for option in known if isinstance(option.default, str)}
        values = dict(_texts({**defaults, **(cast(Any, given) if isinstance(given, dict) else {})}))
        for key, text in values.items():
            if text and ("://" in text or key.endswith(_ADDRESSES)):
                yield f"connects to {_bare(text)!r}"
        for key, text in values.items():
            if text and key.endswith(_VARIABLE):
                yield f"sends what the environment variable {text} holds"


def _bare(address: str) -> str:
    """An address without the user and the password that may be in it."""
    scheme, mark, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}" if mark else address
