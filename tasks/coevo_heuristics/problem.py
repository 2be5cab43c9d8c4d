"""A problem as a folder: `problem.toml`, `evaluate.py` and one template per hole.

Everything a user can get wrong in the folder is a `UserError` of one line that names the file and the key.
"""

from __future__ import annotations

import keyword
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

import pydantic

from coevo.errors import UserError, did_you_mean
from coevo.files import read_text, read_toml
from coevo.sandbox import Limits

HoleKind: TypeAlias = Literal["expression", "function"]
_MAX_NEW_TOKENS: dict[HoleKind, int] = {"expression": 24, "function": 768}


class _Strict(pydantic.BaseModel):
    """A table of the file: unknown keys are refused, with the key that was probably meant."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _know_all_keys(cls, value: object) -> object:
        if isinstance(value, dict):
            known = list(cls.model_fields)
            for key in cast("dict[str, object]", value):
                if key not in known:
                    raise ValueError(f"unknown key {key!r}{did_you_mean(key, known)}")
        return cast(object, value)


class HoleTable(_Strict):
    """`[holes.function]` or `[holes.expression]`: what the model fills in.

    Attributes:
        template: file of the module with the hole in it, which is also the seed heuristic.
        replace: the text of the template that an expression replaces; a function replaces what stands
            between `# coevo: hole` and `# coevo: end`.
        signature: what the model completes.
        arguments: (name, meaning) of what it may use.
        returns: what it gives back, in words.
        examples: answers that a prompt may show; none should be better than the baseline.
        max_new_tokens: how long an answer may be.
    """

    template: str
    signature: str
    arguments: tuple[tuple[str, str], ...]
    returns: str
    replace: str = ""
    examples: tuple[str, ...] = ()
    max_new_tokens: int = pydantic.Field(default=0, ge=0)


_LIMITS = Limits()
Seconds: TypeAlias = Annotated[float, pydantic.Field(gt=0, le=1e6, allow_inf_nan=False)]


class LimitsTable(_Strict):
    """`[limits]` of one candidate, and of evaluate.py itself (`author_seconds`), see `coevo.sandbox.Limits`.

    Attributes:
        held_out_cpu_seconds: takes the place of `cpu_seconds` on splits other than the search split, of all of them
            or by the name of each; where nothing is given `cpu_seconds` grows with the instances (see `growth`).
    """

    cpu_seconds: Seconds = _LIMITS.cpu_seconds
    held_out_cpu_seconds: dict[str, Seconds] | Seconds | None = None
    wall_seconds: Seconds | None = None
    memory_mb: int = pydantic.Field(default=_LIMITS.memory_mb, gt=0, le=1 << 24)
    output_kb: int = pydantic.Field(default=_LIMITS.output_kb, gt=0, le=1 << 24)
    file_mb: int = pydantic.Field(default=_LIMITS.file_mb, gt=0, le=1 << 24)
    processes: int = pydantic.Field(default=_LIMITS.processes, gt=0, le=1 << 12)
    author_seconds: Seconds = _LIMITS.author_seconds


class ReferenceTable(_Strict):
    """`[[references]]`: a known objective value, in the problem's own direction."""

    name: str
    split: str
    value: float = pydantic.Field(allow_inf_nan=False)
    method: str = ""
    proved: bool = False
    baseline: bool = False


class ProblemTable(_Strict):
    """`problem.toml`.

    Attributes:
        name, title: short and for a reader.
        direction: of the objective.
        entry: the function that `evaluate.py` calls, the same for every hole.
        description: the problem in a few lines, shown to the model.
        hole: the hole that is used unless the run says otherwise.
        splits: name of a split → what `instances` of evaluate.py calls it; `train` is what a search sees, `test` must
            be neither that nor `validation`.
        limits: of one candidate.
        holes: at least one.
        references: known objective values.
    """

    name: str
    title: str
    direction: Literal["minimize", "maximize"]
    entry: str
    description: str
    splits: dict[str, str]
    holes: dict[HoleKind, HoleTable] = pydantic.Field(min_length=1)
    hole: HoleKind | None = None
    limits: LimitsTable = LimitsTable()
    references: tuple[ReferenceTable, ...] = ()

    @pydantic.model_validator(mode="after")
    def _hangs_together(self) -> ProblemTable:
        # Runs and files are called after it.
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise ValueError(f"name {self.name[:60]!r} is none: it should be of letters, digits, '_', '-' and '.'")
        if not _is_name(self.entry):
            raise ValueError(f"entry {self.entry!r} is no name of a function")
        if "train" not in self.splits:
            raise ValueError("[splits] has no 'train', which is what a search sees")
        if self.hole is not None and self.hole not in self.holes:
            raise ValueError(f"hole = {self.hole!r}, but there is no [holes.{self.hole}]")
        for name in ("train", "validation"):
            if "test" in self.splits and self.splits.get(name) == self.splits["test"]:
                raise ValueError(
                    f"[splits] has {self.splits[name]!r} as 'test' and as {name!r}, which a search may see"
                )
        for kind, hole in self.holes.items():
            _check_hole(kind, hole, self.entry)
        _check_references(self.references, self.splits)
        given = self.limits.held_out_cpu_seconds
        known = [*self.splits, *self.splits.values(), *(r.split for r in self.references)]
        for split in given if isinstance(given, dict) else ():
            if split not in known:
                said = f"limits.held_out_cpu_seconds names split {split!r}"
                raise ValueError(said + did_you_mean(split, list(dict.fromkeys(known))))
            if self.splits.get(split, split) == self.splits["train"]:
                raise ValueError(f"limits.held_out_cpu_seconds names {split!r}, the search split; write cpu_seconds")
        return self


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _check_hole(kind: HoleKind, hole: HoleTable, entry: str) -> None:
    """Refuse what a hole of the kind cannot be.

    Raises:
        ValueError: the signature does not fit, an argument is named twice, or a function hole replaces a text.
    """
    where = f"holes.{kind}"
    for name, times in Counter(name for name, _ in hole.arguments).items():
        if times > 1 or not _is_name(name):
            raise ValueError(f"{where}.arguments names {name!r}" + (" twice" if times > 1 else ", which is no name"))
    if kind == "function":
        if not re.match(rf"\s*def\s+{re.escape(entry)}\s*\(", hole.signature):
            raise ValueError(f"{where}.signature got {hole.signature!r}; expected one of the entry, 'def {entry}(…):'")
        if hole.replace:
            raise ValueError(
                f"{where}.replace got {hole.replace!r}, which is for expression holes; a function replaces what stands "
                "between '# coevo: hole' and '# coevo: end'"
            )
    elif not re.fullmatch(r"\s*[^\W\d]\w*\s*=\s*", hole.signature):
        raise ValueError(f"{where}.signature got {hole.signature!r}; expected what is assigned to, such as 'score ='")


def _check_references(references: tuple[ReferenceTable, ...], splits: Mapping[str, str]) -> None:
    """Refuse references that contradict each other, and splits that are likely misspelt.

    Whether a split that only a reference names exists is known to evaluate.py alone, and loading it would show a
    search what is held out; `coevo check` does.

    Raises:
        ValueError: the first thing that is wrong.
    """
    seen: set[tuple[str, str]] = set()
    for reference in references:
        name, split = reference.name, reference.split
        if (name, split) in seen:
            raise ValueError(f"reference {name!r} of split {split!r} is there twice")
        seen.add((name, split))
        if hint := _misspelt(split, splits):
            raise ValueError(f"reference {name!r} belongs to split {split!r}, which [splits] does not have{hint}")
    baselines = {reference.name for reference in references if reference.baseline}
    marked: dict[str, str] = {}
    for reference in references:
        if reference.name in baselines:
            # Its name counts on every split, by either of the split's names.
            actual = splits.get(reference.split, reference.split)
            other = marked.setdefault(actual, reference.name)
            if other != reference.name:
                raise ValueError(
                    f"two references of split {reference.split!r} are the baseline, {other!r} and "
                    f"{reference.name!r}; one may be"
                )


def _misspelt(split: str, splits: Mapping[str, str]) -> str:
    """A did-you-mean for a name that resembles one of [splits] in more than its numbers (`test20` and `test50`)."""
    known = list(dict.fromkeys([*splits, *splits.values()]))
    letters = [re.split(r"\d", name)[0] for name in [split, *known]]
    if split in known or letters[0] in letters[1:]:
        return ""
    return did_you_mean(split, known, otherwise="")


MOST_WORKERS = 1024
"""Candidates at once: each is a process of its own, and more than there are cores make nothing faster."""


class Problem:
    """A problem folder that has been read: `table` is its problem.toml.

    Raises:
        UserError: the folder is none, or its problem.toml is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "problem.toml"
        if not self.file.is_file():
            raise UserError(
                f"no problem in {str(folder)!r}: expected a folder with problem.toml, evaluate.py and a template; "
                "docs/problems.md shows a whole one"
            )
        self.table = _read(self.file)

    def hole(self, asked: HoleKind | None = None) -> HoleKind:
        """The hole to use: the one asked for, else the file's choice, else its first."""
        kind = asked or self.table.hole or next(iter(self.table.holes))
        if kind not in self.table.holes:
            known = ", ".join(self.table.holes)
            raise UserError(f"problem {self.table.name!r} has no hole {kind!r}; it has: {known}")
        return kind

    def max_new_tokens(self, kind: HoleKind) -> int:
        """How long an answer may be."""
        return self.table.holes[kind].max_new_tokens or _MAX_NEW_TOKENS[kind]

    @property
    def splits(self) -> dict[str, str]:
        """Every split that the file names, in [splits] or for a reference → its name in evaluate.py."""
        known = dict(self.table.splits)
        for name in [*self.table.splits.values(), *(r.split for r in self.table.references)]:
            known.setdefault(name, name)
        return known

    def limits(self, cpu_seconds: float | None = None, memory_mb: int | None = None) -> Limits:
        """Limits of one candidate on the search split; what is not None overrides."""
        values: dict[str, Any] = self.table.limits.model_dump(exclude={"held_out_cpu_seconds"})
        if cpu_seconds is not None:
            values["cpu_seconds"] = cpu_seconds
        if memory_mb is not None:
            values["memory_mb"] = memory_mb
        return Limits(**values)

    def held_out_limits(self, search: Limits, split: str, growth: float) -> Limits:
        """Limits of one candidate on another split than the search split.

        CPU time, wall-clock time and the size of the answer grow alike; memory, files and processes do not.

        Args:
            search: those of the search split, overridden or not.
            split: as evaluate.py calls it.
            growth: how many times the work of the search split it is.
        """
        given = self.table.limits.held_out_cpu_seconds
        if isinstance(given, dict):
            given = next((given[name] for name in given if self.splits.get(name, name) == split), None)
        # What overrides the limit of the search overrides the others in proportion.
        times = growth if given is None else given / self.table.limits.cpu_seconds
        return replace(
            search,
            cpu_seconds=search.cpu_seconds * times,
            wall_seconds=None if search.wall_seconds is None else search.wall_seconds * max(times, growth),
            output_kb=math.ceil(search.output_kb * max(times, growth)),
        )

    def read(self, name: str) -> str:
        """The text of a file of the folder that problem.toml names."""
        path = self.folder / name
        if not path.exists():
            raise UserError(f"{str(self.file)!r} names {name!r}, which cannot be read: there is no such file")
        return read_text(path)


def _read(file: Path) -> ProblemTable:
    try:
        return ProblemTable.model_validate(read_toml(file))
    except pydantic.ValidationError as error:
        raise UserError(f"{str(file)!r}: {_first_complaint(error)}") from None


def _first_complaint(error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if part != "[key]")
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"key {key!r} is missing"
    value: object = first["input"]
    said = said[:1].lower() + said[1:]
    if not key or first["type"] == "value_error":
        return f"key {key!r}: {said}" if key else said
    if first["type"] == "literal_error" and isinstance(value, str):
        expected = re.findall("'([^']+)'", str(first.get("ctx", {}).get("expected", "")))
        return f"key {key!r} got {value!r}{did_you_mean(value, expected)}"
    return f"key {key!r} got {value!r}: {said}" if isinstance(value, str | int | float) else f"key {key!r}: {said}"
