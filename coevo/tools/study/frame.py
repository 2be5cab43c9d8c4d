"""What is compared: runs, as arms × seeds, within cells of a problem and a budget."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Cell:
    """A problem and a budget, within which arms are compared; empty where there is no such axis."""

    problem: str = ""
    budget: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """What is named of the two."""
        return tuple(part for part in (self.problem, self.budget) if part)

    def __str__(self) -> str:
        return "/".join(self.parts)


@dataclass(frozen=True, slots=True)
class Subject:
    """One arm with one seed in one cell: a run.

    Attributes:
        name: of the run.
        path: its folder.
    """

    arm: str
    seed: int
    name: str
    path: Path
    cell: Cell = Cell()

    @property
    def label(self) -> str:
        """Its name within the comparison."""
        return "/".join((*self.cell.parts, self.name))

    @property
    def begun(self) -> bool:
        """Whether it was begun."""
        return (self.path / "config.toml").is_file()


@dataclass(frozen=True, slots=True)
class Frame:
    """A comparison without its numbers.

    Attributes:
        arms: in order; the others are compared with the first.
        seeds: in order.
        cells: problems × budgets in order; a single one that is empty where there is neither.
        source: the file or the runs that it was made from.
    """

    name: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]
    source: str
