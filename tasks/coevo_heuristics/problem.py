"""A problem as a folder: `problem.toml`, `evaluate.py` and one template per hole.

Everything a user can get wrong in the folder is a `UserError` of one line that names the file and the key.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import pydantic

from coevo.errors import UserError
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
            keys = list(cast("dict[str, object]", value))
            for key in keys:
                if key not in known:
                    close = difflib.get_close_matches(key, known, n=1)
                    hint = f"did you mean {close[0]!r}?" if close else f"expected one of: {', '.join(known)}"
                    raise ValueError(f"unknown key {key!r}; {hint}")
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


class LimitsTable(_Strict):
    """`[limits]` of one candidate, and of evaluate.py itself (`author_seconds`), see `coevo.sandbox.Limits`.

    Attributes:
        held_out_cpu_seconds: takes the place of `cpu_seconds` on splits other than the search split, which are
            larger as a rule and evaluated once; None is `cpu_seconds` there too.
    """

    cpu_seconds: float = pydantic.Field(default=_LIMITS.cpu_seconds, gt=0)
    held_out_cpu_seconds: float | None = pydantic.Field(default=None, gt=0)
    wall_seconds: float | None = pydantic.Field(default=None, gt=0)
    memory_mb: int = pydantic.Field(default=_LIMITS.memory_mb, gt=0)
    output_kb: int = pydantic.Field(default=_LIMITS.output_kb, gt=0)
    file_mb: int = pydantic.Field(default=_LIMITS.file_mb, gt=0)
    processes: int = pydantic.Field(default=_LIMITS.processes, gt=0)
    author_seconds: float = pydantic.Field(default=_LIMITS.author_seconds, gt=0)


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
        splits: name of a split → what `instances` of evaluate.py calls it; `train` is what a search sees.
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
        if not self.entry.isidentifier():
            raise ValueError(f"entry {self.entry!r} is no name of a function")
        if "train" not in self.splits:
            raise ValueError("[splits] has no 'train', which is what a search sees")
        if self.hole is not None and self.hole not in self.holes:
            raise ValueError(f"hole = {self.hole!r}, but there is no [holes.{self.hole}]")
        marked = [r.split for r in self.references if r.baseline]
        for split in marked:
            if marked.count(split) > 1:
                raise ValueError(f"two references of split {split!r} are the baseline; one may be")
        return self


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

    def limits(self, cpu_seconds: float | None = None, memory_mb: int | None = None, held_out: bool = False) -> Limits:
        """Limits of one candidate, on the search split or on one that is held out; what is not None overrides."""
        values: dict[str, Any] = self.table.limits.model_dump()
        longer = values.pop("held_out_cpu_seconds")
        if held_out and longer is not None:
            values["cpu_seconds"] = longer
        if cpu_seconds is not None:
            values["cpu_seconds"] = cpu_seconds
        if memory_mb is not None:
            values["memory_mb"] = memory_mb
        return Limits(**values)

    def read(self, name: str) -> str:
        """The text of a file of the folder that problem.toml names."""
        path = self.folder / name
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{str(self.file)!r} names {name!r}, which cannot be read: {error}") from None


def _read(file: Path) -> ProblemTable:
    try:
        content = tomllib.loads(file.read_text("utf-8"))
        return ProblemTable.model_validate(content)
    except pydantic.ValidationError as error:
        raise UserError(f"{str(file)!r}: {_first_complaint(error)}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{str(file)!r}: {error}") from None


def _first_complaint(error: pydantic.ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if part != "[key]")
    said = first["msg"].removeprefix("Value error, ")
    if first["type"] == "missing":
        return f"key {key!r} is missing"
    said = said[:1].lower() + said[1:]
    return f"key {key!r}: {said}" if key else said
