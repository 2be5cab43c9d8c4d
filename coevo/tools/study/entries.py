"""A study's file: what it may say. Every mistake in it is one line that says what was expected."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field

from coevo.errors import UserError, did_you_mean
from coevo.host.config import RunConfig, read_file
from coevo.records import Json

SET_BY_STUDY = {
    "seed": "seeds = [0, 1, 2] at the top of the file",
    "name": "name at the top of the file",
    "runs": "coevo study --runs DIR",
}
"""Keys of a run that a study sets itself, and where to say them instead."""
FILES = ("config.toml", "curves.png", "curves.svg", "lock", "study.html", "study.json", "table.md")
"""Of a study's folder, in which problems and budgets have theirs."""
MOST_SEEDS = 1000
MOST_BYTES = 200
"""Of a name: that of a run, which has the seed in it, still fits into a folder's."""

# What a check raises is said after the place that is wrong: "arms.a" + ".seed is set by the study itself".


def _folder_name(name: Any) -> str:
    """A name that is one folder's name and nothing else."""
    good = isinstance(name, str) and name.strip() == name and name.isprintable()
    if not good or name in ("", ".", "..") or name.startswith("-") or "/" in name or "\\" in name:
        raise ValueError(f" got {name!r}: expected a name such as 'es+sample', which becomes that of a folder")
    if len(os.fsencode(name)) > MOST_BYTES:
        raise ValueError(f" got a name of {len(name)} letters: expected at most {MOST_BYTES} bytes")
    return name


def _no_file(name: str) -> str:
    if name in FILES:
        raise ValueError(f" got {name!r}, which is a file of the study; give it another")
    return name


def _of_a_run(table: dict[str, Json]) -> dict[str, Json]:
    for key, instead in SET_BY_STUDY.items():
        if key in table:
            raise ValueError(f".{key} is set by the study itself; write {instead}")
    return table


def _different(seeds: list[int]) -> list[int]:
    if len(seeds) > MOST_SEEDS:
        raise ValueError(f" got {len(seeds):,} seeds: expected at most {MOST_SEEDS:,}")
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise ValueError(f" got {twice[0]!r} twice: runs of equal seeds are equal")
    return seeds


Name: TypeAlias = Annotated[str, BeforeValidator(_folder_name)]
Layer: TypeAlias = Annotated[dict[str, Json], AfterValidator(_of_a_run)]
Axis: TypeAlias = Annotated[dict[Annotated[Name, AfterValidator(_no_file)], Layer], Field(min_length=1)]
Seed: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]


class StudyFile(pydantic.BaseModel):
    """The entries of a study's file; all tables hold keys of a run."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Name
    seeds: Annotated[list[Seed], Field(min_length=1), AfterValidator(_different)]
    base: Layer = {}
    arms: Annotated[dict[Name, Layer], Field(min_length=1)]
    problems: Axis | None = None
    budgets: Axis | None = None


WRITTEN = {
    "name": 'name = "mine"',
    "seeds": "seeds = [0, 1, 2] at the top of the file",
    "base": "[base]",
    "arms": '[arms."es+sample"], a table of what differs from [base]',
    "problems": "[problems.tsp_construct]",
    "budgets": '[budgets."512"]',
}
"""How each entry is written."""


def read_entries(file: Path) -> StudyFile:
    """Read a study's file; it is named after its file where it has no name.

    Raises:
        UserError: the first thing that is wrong, in one line.
    """
    try:
        return StudyFile.model_validate({"name": file.stem, **read_file(file)})
    except pydantic.ValidationError as error:
        raise UserError(_explain(error, file)) from None


def _explain(error: pydantic.ValidationError, file: Path) -> str:
    # A key that is not known comes first: it may be the one that is missing, mistyped.
    first = min(error.errors(), key=lambda each: each["type"] != "extra_forbidden")
    key, *inner = (str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = list(StudyFile.model_fields)
        hint = "; it belongs below [base]" if key in RunConfig.model_fields else did_you_mean(key, known)
        return f"unknown key {key!r} in study {str(file)!r}{hint}"
    if first["type"] == "missing":
        return f"a study needs {key}; write {WRITTEN[key]}"
    where = ".".join([key, *inner])
    if "[key]" in inner:
        where = f"the name of {'an arm' if key == 'arms' else 'a ' + key[:-1]}"
    if first["type"] == "value_error":
        return f"{where}{first.get('ctx', {})['error']}"
    said = f"{first['msg'][0].lower()}{first['msg'][1:]}".replace("dictionary", "table")
    return f"{where} got {first['input']!r}: {said}; write {WRITTEN[key]}"
