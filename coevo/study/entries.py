"""The entries of a study's file, each checked by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeGuard, cast

from coevo.errors import UserError
from coevo.records import Json

SET_BY_STUDY = {
    "seed": "seeds = [0, 1, 2] at the top of the file",
    "name": "name at the top of the file",
    "runs": "coevo study --runs DIR",
}
"""Keys of a run that a study sets itself, and where to say them instead."""
MOST_SEEDS = 1000
MOST_BYTES = 200
"""Of a name: that of a run, which has the seed in it, still fits into a folder's."""


def arms_of(data: Mapping[str, Json]) -> Mapping[str, Json]:
    """The tables of the arms, by name.

    Raises:
        UserError: there are none.
    """
    arms: Json = data.get("arms", {})
    if not isinstance(arms, dict) or not arms:
        raise UserError('a study needs arms, each a table of what differs from [base]; write [arms."es+sample"]')
    return cast(Mapping[str, Json], arms)


def table_of(where: str, value: Json) -> Mapping[str, Json]:
    """A table that configures runs: all keys of a run but those that the study sets.

    Raises:
        UserError: it is none, or has such a key.
    """
    if not isinstance(value, dict):
        raise UserError(f"{where} got {value!r}: it should be a table")
    table = cast(Mapping[str, Json], value)
    for key, instead in SET_BY_STUDY.items():
        if key in table:
            raise UserError(f"{where}.{key} is set by the study itself; write {instead}")
    return table


def folder_name(what: str, value: Json) -> str:
    """A name that is one folder's name and nothing else.

    Raises:
        UserError: it is not.
    """
    good = isinstance(value, str) and value.strip() == value and value.isprintable()
    if not good or value in ("", ".", "..") or value.startswith("-") or "/" in value or "\\" in value:
        raise UserError(f"{what} got {value!r}: expected a name such as 'es+sample', which becomes that of a folder")
    if len(os.fsencode(value)) > MOST_BYTES:
        raise UserError(f"{what} got a name of {len(value)} letters: expected at most {MOST_BYTES} bytes")
    return str(value)


def seeds_of(value: Json) -> tuple[int, ...]:
    """The seeds.

    Raises:
        UserError: they are no list of different whole numbers.
    """
    if value is None:
        raise UserError("a study needs seeds; write seeds = [0, 1, 2] at the top of the file")
    if not isinstance(value, list) or not value:
        raise UserError(f"seeds got {value!r}: expected a list such as [0, 1, 2]")
    seeds = cast(list[Json], value)
    for seed in seeds:
        if not _is_seed(seed):
            raise UserError(f"seeds got {seed!r}: expected whole numbers from 0 to 2**63 - 1")
        if seeds.count(seed) > 1:
            raise UserError(f"seeds got {seed!r} twice: runs of equal seeds are equal")
    if len(seeds) > MOST_SEEDS:
        raise UserError(f"seeds got {len(seeds):,} seeds: expected at most {MOST_SEEDS:,}")
    return tuple(seeds)


def _is_seed(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
