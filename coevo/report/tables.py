"""Tables: columns say what a row's cells are; one table is drawn as text, as Markdown and on a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from coevo.report.numbers import ABSENT, table

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column: its head, and what there is to say in it of a row; `words` are aligned to the left on a page."""

    head: str
    cell: Callable[[Row], str]
    words: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads; columns named in `words` hold words, the others numbers, aligned to the right on a page."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[str] = ()

    @classmethod
    def of(cls, caption: str, columns: Sequence[Column[Row]], things: Iterable[Row]) -> Table:
        """One row for each of `things`."""
        rows = [[column.cell(thing) for column in columns] for thing in things]
        return cls(caption, [c.head for c in columns], rows, [c.head for c in columns if c.words])

    def telling(self) -> Table:
        """Without the columns that say nothing."""
        kept = [i for i in range(len(self.heads)) if any(row[i] not in ("", ABSENT) for row in self.rows)]
        rows = [[row[i] for i in kept] for row in self.rows]
        return Table(self.caption, [self.heads[i] for i in kept], rows, self.words)

    def text(self) -> str:
        """For a terminal, without the caption."""
        return table(self.rows, self.heads)

    def markdown(self) -> str:
        """For documentation, without the caption."""
        marks = ["---" if head in self.words else "--:" for head in self.heads]
        return "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in (self.heads, marks, *self.rows))


def escaped(cell: str) -> str:
    """A text as a cell of a Markdown table."""
    return cell.replace("|", "\\|")
