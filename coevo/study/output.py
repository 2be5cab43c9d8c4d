"""Files of a study, beside its runs: study.json, table.md, curves.svg, curves.png and study.html."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from coevo.codec import dumps
from coevo.errors import RunError
from coevo.folder import write_atomic
from coevo.records import Json
from coevo.study import tables
from coevo.study.plan import Study
from coevo.study.results import Reading

DRAWING = ("matplotlib", "jinja2", "markupsafe")


def publish(study: Study, result: Mapping[str, Json], readings: Sequence[Reading], *, figures: bool) -> None:
    """Write what changed.

    Args:
        study: which.
        result: what `coevo study --json` prints.
        readings: of all its runs.
        figures: curves and page as well: seconds of work, for the end.

    Raises:
        RunError: the folder cannot be written.
    """
    data, page = study.folder / "study.json", study.folder / "study.html"
    try:
        _write(study.folder / "table.md", tables.markdown(result))
        _write(data, dumps(result, indent=1) + "\n")
        if figures and (not page.exists() or page.stat().st_mtime_ns < data.stat().st_mtime_ns):
            _draw(study, result, readings, page)
    except OSError as error:
        raise RunError(
            f"cannot write in the study's folder {str(study.folder)!r}: {error.strerror}; mend it, and the same "
            "command goes on"
        ) from None


def _write(path: Path, text: str) -> None:
    # A study that is only read again leaves its files as they are.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_atomic(path, text)


def _draw(study: Study, result: Mapping[str, Json], readings: Sequence[Reading], page: Path) -> None:
    try:
        from coevo.study import figures
    except ModuleNotFoundError as error:
        if error.name not in DRAWING:
            raise
        print(f"coevo: note: no curves are drawn: {error.name} is not installed", file=sys.stderr)
        return
    figure = figures.draw(study, readings)
    figures.save(figure, study.folder / "curves")
    _write(page, figures.page(study, result, figure))
    # It may be the same text: it is up to date all the same.
    page.touch()
