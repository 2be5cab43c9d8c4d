"""What is on disk of a planned run, and whether it is the run that the study asks for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from coevo.app.blueprint import Blueprint
from coevo.errors import CoevoError, UserError
from coevo.host.config import build
from coevo.host.discovery import Registries
from coevo.records import Json
from coevo.runs.folder import RunFolder
from coevo.tools.study.plan import PlannedRun

NO_RESULT = ("loggers", "name", "runs", "anchor_seconds")
"""Keys of a run that change nothing of its results."""


def check_same(run: PlannedRun, registries: Registries) -> str:
    """Refuse a run on disk that was made with another configuration.

    Returns:
        What is wrong with a configuration that cannot be read, else an empty text.

    Raises:
        UserError: the run, the key and both values.
    """
    folder = RunFolder(run.subject.path)
    try:
        made = Blueprint(build(folder.config(), registries.names), registries)
    except CoevoError as error:
        return f"its configuration is damaged: {error}"  # it fails by itself, and the others go on
    before = _flat(made)
    # The day on which a run began is its own, where the study names none.
    date, asked = made.date(), Blueprint(run.config, registries)
    now = _flat(asked.dated(date) if date else asked)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise UserError(
                f"run {run.subject.label!r} was made with {_said(key, before)} and the study now asks for "
                f"{_said(key, now)}; give the study another name, or remove {str(run.subject.path)!r}"
            )
    return ""


def _said(key: str, values: Mapping[str, Json]) -> str:
    return f"{key} = {values[key]!r}" if key in values else f"no {key}"


def _flat(blueprint: Blueprint) -> dict[str, Json]:
    """`a.b` → value of everything that may change a result."""
    config, loggers = blueprint.config, blueprint.registries.loggers
    data = {k: v for k, v in config.to_toml_data().items() if k not in NO_RESULT and k not in loggers}
    # Where a plugin's file is says nothing, and changes with the machine.
    data["plugins"] = [Path(str(file)).name for file in config.plugins]
    return dict(_leaves("", data))


def _leaves(prefix: str, table: Mapping[str, Json]) -> list[tuple[str, Json]]:
    found: list[tuple[str, Json]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _leaves(f"{prefix}{key}.", cast(Mapping[str, Json], value))
        else:
            found.append((f"{prefix}{key}", value))
    return found
