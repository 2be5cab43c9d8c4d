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
FILES = ("config.toml", "curves.png", "curves.svg", "lock", "study.html", "study.json", "table.md")
"""Of a study's folder, in which problems and budgets have theirs."""
_EXAMPLES = {"problems": "tsp_construct", "budgets": "512"}
MOST_SEEDS = 1000
MOST_BYTES = 200
"""Of a name: that of a run, which has the seed in it, still fits into a folder's."""


AXES = {"arms": "arm", "problems": "problem", "budgets": "budget"}
"""Tables of tables of a study, and what one of their entries is called."""


def axis_of(data: Mapping[str, Json], key: str) -> dict[str, Mapping[str, Json]]:
    """The tables of the arms, problems or budgets, by name; none where the file has none.

    Raises:
        UserError: what is there is no table of tables, a name cannot be a folder's, or there are no arms.
    """
    entries: Json = data.get(key, {})
    if key == "arms" and (not isinstance(entries, dict) or not entries):
        raise UserError('a study needs arms, each a table of what differs from [base]; write [arms."es+sample"]')
    if not isinstance(entries, dict) or (key in data and not entries):
        raise UserError(f'{key} got {entries!r}: expected tables such as [{key}."{_EXAMPLES.get(key)}"]')
    tables = cast(Mapping[str, Json], entries)
    word = AXES[key]
    article = "an" if word == "arm" else "a"
    for name in tables:
        if key != "arms" and name in FILES:
            raise UserError(f"the name of a {word} got {name!r}, which is a file of the study; give it another")
    return {
        folder_name(f"the name of {article} {word}", name): table_of(f"{key}.{name}", own)
        for name, own in tables.items()
    }


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
