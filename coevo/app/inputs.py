"""What a run's results depend on besides its configuration: files by their hash, plugins, the environment.

A run is begun with one version of everything. What has changed when it is resumed would mix two in one result, so the
hashes are in run.json, and `changes` says what differs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from coevo.app.blueprint import Blueprint
from coevo.host.config import FOLDER_TASK, RunConfig
from coevo.host.discovery import LOCAL_MODULE, Plugins
from coevo.host.hashes import Hashes, changed, differing, folder_files, hash_of
from coevo.records import Json

_OWN = "coevo "
"""How the source of a plugin begins that comes with coevo: its version is compared with coevo's own."""

ENVIRONMENT = (
    "COEVO_", "CUDA_", "DNNL_", "KMP_", "MKL_", "NUMBA_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHONHASHSEED",
    "PYTORCH_", "TOKENIZERS_", "TORCH_", "VLLM_",
)  # fmt: skip
"""How the names of variables begin that change what is computed."""
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "AUTH")
_HARMLESS = ("COEVO_CACHE", "COEVO_EVALUATIONS", "COEVO_TRACEBACK", "COEVO_TRUST")

FREE = ("anchor_seconds", "judge_best", "loggers", "name", "plugins", "runs")
"""Keys of a configuration that change no rollout; what plugin files hold is compared by itself."""
LENGTHS = ("calls", "generations", "tokens")
"""Keys that say how long a run is."""


@dataclass(slots=True)
class Changes:
    """What is not as it was when the run began.

    Attributes:
        mixing: would mix two versions in one result.
        notes: may make new rollouts differ from an unbroken run's, or is only good to know.
    """

    mixing: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])


def taken(blueprint: Blueprint, plugins: Plugins) -> dict[str, Json]:
    """For run.json: everything that `changes` compares, as it is now."""
    config, parts = blueprint.config, chosen(blueprint)
    brought = {plugin.name: plugin.source for plugin in plugins.found if not plugin.error}
    local = {name: source for name, source in brought.items() if source.endswith(".py")}
    wanted = {**{name: brought.get(name, "") for name in parts.values()}, **local}
    return {
        "folder": os.getcwd(),
        "config": config.to_toml_data(),
        "parts": parts,
        "plugins": {
            name: {"source": source, **_plugin_files(plugins.manager.get_plugin(name))}
            for name, source in sorted(wanted.items())
        },
        "files": _option_files(config),
        "environment": _environment(),
    }


def not_loaded(before: Mapping[str, Any], plugins: Plugins) -> str:
    """The local plugin that a run began with, computes something, and is not there now; empty where there is none."""
    found = {plugin.name for plugin in plugins.found}
    for name, was in before.get("plugins", {}).items():
        if was["source"].endswith(".py") and name in before["parts"].values() and name not in found:
            return f"plugin {was['source']!r}, which is not loaded here; resume it from {before['folder']!r}"
    return ""


def chosen(blueprint: Blueprint) -> dict[str, str]:
    """Part of the run → name of the plugin that brought it; left out are objects without a name, as a test's may be."""
    config, registries, (inner, _) = blueprint.config, blueprint.registries, blueprint.inner_engine()
    parts = {
        **({f"engine {inner!r}": registries.engines.entry(inner).plugin} if inner in registries.engines else {}),
        f"task {config.task!r}": registries.tasks.entry(config.task).plugin,
        f"engine {config.engine!r}": registries.engines.entry(config.engine).plugin,
        f"parameter updater {config.param!r}": registries.parameter_updaters.entry(config.param).plugin,
        f"context updater {config.context!r}": registries.context_updaters.entry(config.context).plugin,
    }
    return {part: plugin for part, plugin in parts.items() if not plugin.isdigit()}


def changes(before: Mapping[str, Any], now: Mapping[str, Any], loggers: object = ()) -> Changes:
    """What differs between two that `taken` gave; nothing where the first is empty.

    Args:
        before: of the run's begin.
        now: of its resume.
        loggers: names whose tables of options change nothing; a container.
    """
    found = Changes()
    if not before:
        return found
    _compare_config(found, before["config"], now["config"], cast(Any, loggers))
    _compare_plugins(found, before, now)
    for option, files in before["files"].items():
        if option not in now["files"]:
            found.mixing.append(f"what option {option} names is gone (the run began in {before['folder']!r})")
            continue
        found.mixing += differing(files, now["files"][option], f"of option {option} ")
    for name in sorted({*before["environment"], *now["environment"]}):
        was, is_now = before["environment"].get(name), now["environment"].get(name)
        if was != is_now:
            found.notes.append(changed(f"environment variable {name}", _told(was), _told(is_now)))
    return found


def _told(value: str | None) -> str:
    return "not set" if value is None else repr(value)


def _compare_config(found: Changes, before: Mapping[str, Json], now: Mapping[str, Json], loggers: Any) -> None:
    was, is_now = dict(leaves(before)), dict(leaves(now))
    for key in sorted({*was, *is_now}):
        top = key.partition(".")[0]
        if top in FREE or top in loggers or was.get(key) == is_now.get(key):
            continue
        said = changed(f"{key} in config.toml", _told_key(was, key), _told_key(is_now, key))
        if key in LENGTHS:
            found.notes.append(f"{said}; schedules over the whole run go on by the new one")
        else:
            found.mixing.append(said)


def _told_key(values: Mapping[str, Json], key: str) -> str:
    return repr(values[key]) if key in values else "not there"


def leaves(table: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    """`a.b` → value of everything in nested tables."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from leaves(cast(Mapping[str, Json], value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _compare_plugins(found: Changes, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for part, plugin in before["parts"].items():
        other = now["parts"].get(part)
        if other is not None and other != plugin:
            found.mixing.append(f"{part} came from plugin {plugin!r} when the run began and comes from {other!r}")
    for name, was in before["plugins"].items():
        is_now, computes = now["plugins"].get(name), name in before["parts"].values()
        told: list[str] = found.mixing if computes else found.notes
        if is_now is None:
            told.append(f"plugin {name!r} ({was['source']}) is not loaded")
            continue
        versioned = not was["source"].endswith(".py") and was["source"] != is_now["source"]
        if versioned and was["source"].startswith(_OWN) and is_now["source"].startswith(_OWN):
            continue  # said once, of coevo itself
        if versioned:
            told.append(changed(f"plugin {name!r}", was["source"], is_now["source"]))
        else:
            # Of modules beside it those that were loaded then and are now: which these are is no one's choice.
            both = was["beside"].keys() & is_now["beside"].keys()
            beside, here = ({file: look["beside"][file] for file in both} for look in (was, is_now))
            told += differing(was["files"], is_now["files"], f"of plugin {name!r} ")
            told += differing(beside, here, f"beside plugin {name!r} ")


def _plugin_files(plugin: object) -> dict[str, Hashes]:
    """The files of a plugin, of a package all of them; and modules beside a single file that are loaded."""
    module: Any = plugin if hasattr(plugin, "__file__") else sys.modules.get(type(plugin).__module__)
    file = getattr(module, "__file__", None)
    if not file:
        return {"files": {}, "beside": {}}
    path = Path(file).resolve()
    if path.name == "__init__.py":
        return {"files": folder_files(path.parent), "beside": {}}
    return {"files": {path.name: hash_of(path)}, "beside": _beside(path)}


def _beside(path: Path) -> Hashes:
    """Modules in the folder of a single plugin file that are loaded; other plugins speak for themselves."""
    loaded = [module for name, module in list(sys.modules.items()) if not name.startswith(LOCAL_MODULE)]
    files = {str(getattr(module, "__file__", None) or "") for module in loaded}
    paths = {Path(file) for file in files if file.endswith(".py") and Path(file).parent == path.parent}
    return {each.name: hash_of(each) for each in paths if each != path and each.is_file()}


def _option_files(config: RunConfig) -> dict[str, Hashes]:
    """Option → hashes of the file, or of all files of the folder, that it names."""
    found: dict[str, Hashes] = {}
    own = Path(config.runs).absolute()
    for table in sorted({config.task, config.engine, config.param, config.context}):
        for key, value in config.options.get(table, {}).items():
            if not isinstance(value, str) or not _names_a_file(value, table, key):
                continue
            path = Path(value).expanduser()
            hashes = folder_files(path, own) if path.is_dir() else {path.name: hash_of(path)}
            if hashes:
                found[f"{table}.{key}"] = hashes
    return found


def _names_a_file(value: str, table: str, key: str) -> bool:
    """A path, or a file's name with its ending; no word that happens to be the name of a folder."""
    try:
        path = Path(value).expanduser()
        is_path = os.sep in value or (path.is_file() and bool(path.suffix)) or (table, key) == (FOLDER_TASK, "folder")
        return is_path and (path.is_dir() or path.is_file())
    except (OSError, ValueError, RuntimeError):
        return False


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(ENVIRONMENT)
        and name not in _HARMLESS
        and not any(word in name for word in _SECRET)
        and "://" not in value
    }
