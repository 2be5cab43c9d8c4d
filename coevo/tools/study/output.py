"""Files of a comparison: its numbers as JSON, table.md, curves.svg, curves.png and a page."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from coevo.errors import RunError
from coevo.files import write_atomic
from coevo.records import Json
from coevo.runs.codec import dumps
from coevo.tools.study import tables
from coevo.tools.study.comparison import comparison
from coevo.tools.study.frame import Frame
from coevo.tools.study.results import Reading

DRAWING = ("matplotlib", "jinja2", "markupsafe")


def publish(
    folder: Path,
    frame: Frame,
    readings: Sequence[Reading],
    *,
    stem: str = "study",
    again: str = "mend it, and the same command goes on",
    figures: bool = True,
) -> dict[str, Json]:
    """Write what changed of `<stem>.json`, `<stem>.html`, table and curves; returns what `--json` prints.

    Args:
        folder: where.
        frame: of what.
        readings: of all its runs.
        stem: of the names of files.
        again: what mends a folder that is full.
        figures: curves and page as well: seconds of work, for the end.

    Raises:
        RunError: the folder cannot be written.
    """
    result = comparison(frame, readings)
    data, page = folder / f"{stem}.json", folder / f"{stem}.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "table.md", tables.markdown(result))
        _write(data, dumps(result, indent=1) + "\n")
        if figures and (not page.exists() or page.stat().st_mtime_ns < data.stat().st_mtime_ns):
            _draw(frame, result, readings, page)
    except OSError as error:
        raise RunError(f"cannot write in {str(folder)!r}: {error.strerror}; {again}") from None
    return result


def _write(path: Path, text: str) -> None:
    # What is only read again leaves its files as they are.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomic(path, text)


def _draw(frame: Frame, result: Mapping[str, Json], readings: Sequence[Reading], page: Path) -> None:
    try:
        from coevo.tools.study import figures
    except ModuleNotFoundError as error:
        if error.name not in DRAWING:
            raise
        print(f"coevo: note: no curves are drawn: {error.name} is not installed", file=sys.stderr)
        return
    figure = figures.draw(frame, readings)
    figures.save(figure, page.parent / "curves")
    _write(page, figures.page(frame, result, figure))
    # It may be the same text: it is up to date all the same.
    os.utime(page, follow_symlinks=False)
