"""What a run has written of itself, read back: `config.toml` and `run.json`, of the form that a run gives them.

A folder may have been cut, edited or mixed up. What is read from it is looked at once, here, so that whoever uses it
finds what it expects, and the reader of a message finds the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, cast

import pydantic

from coevo.config import check_own
from coevo.errors import CheckFailedError, UserError
from coevo.files import MOST_BYTES, read_own, read_regular, read_toml
from coevo.records import Json

_DAMAGED = "the run's folder is damaged"


def config_of(path: Path) -> dict[str, Json]:
    """The resolved configuration in a run's `config.toml`.

    Raises:
        CheckFailedError: no run wrote it so: what is wrong with it.
    """
    try:
        data = read_toml(path)
        check_own(data)
    except UserError as error:
        said = str(error)
        raise CheckFailedError(f"{said if str(path) in said else f'{str(path)!r}: {said}'}; {_DAMAGED}") from None
    return data


def info_of(path: Path) -> dict[str, Json]:
    """What a run's `run.json` holds; nothing where it is absent, as before the engine was ready.

    Raises:
        CheckFailedError: it holds no JSON object, or one of another form.
    """
    data = read_own(path, MOST_BYTES)
    if not data and not path.exists():
        return {}
    try:
        info: Json = json.loads(data)
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise CheckFailedError(f"{str(path)!r} holds no JSON object; {_DAMAGED}")
    try:
        _Info.model_validate(info)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        said = first["msg"]
        raise CheckFailedError(f"{str(path)!r}: {where}: {said[0].lower()}{said[1:]}; {_DAMAGED}") from None
    return cast(dict[str, Any], info)


def best_of(path: Path) -> dict[str, Json]:
    """What a run's `best/best.json` holds; nothing where it is absent, or nothing that a run wrote.

    Nothing is computed from it: it only repeats an answer that is in the rollouts, and adds what it is worth.
    """
    try:
        data: Json = json.loads(read_regular(path))
        _Best.model_validate(data)
    except (OSError, ValueError, RecursionError):
        return {}
    return data


class _Failed(pydantic.BaseModel):
    status: str
    message: str


class _Worth(pydantic.BaseModel):
    status: Literal["ok"]
    objective: float
    instances: int


class _Best(pydantic.BaseModel):
    answer: str
    splits: dict[str, _Worth | _Failed] = {}


class _Task(pydantic.BaseModel):
    direction: Literal["minimize", "maximize"] = "minimize"
    reference: tuple[str, float] | None = None
    baseline: tuple[str, float] | None = None
    references: dict[str, tuple[str, float]] = {}


class _Plugin(pydantic.BaseModel):
    source: str
    files: dict[str, str]
    beside: dict[str, str]


class _Inputs(pydantic.BaseModel):
    folder: str
    config: dict[str, Any]
    parts: dict[str, str]
    plugins: dict[str, _Plugin]
    files: dict[str, dict[str, str]]
    environment: dict[str, str]


class _Accepted(pydantic.BaseModel):
    generation: int
    batch: int
    changes: list[str]


class _Info(pydantic.BaseModel):
    """Those keys of run.json that something else than a reader's eye goes by."""

    task: _Task = _Task()
    versions: dict[str, str] = {}
    engine: dict[str, Any] = {}
    describe: dict[str, str] = {}
    model_files: dict[str, str] = {}
    inputs: _Inputs = cast(_Inputs, None)  # a default is not looked at
    accepted: list[_Accepted] = []
