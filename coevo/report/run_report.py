"""The report of a run: `report.html` and its curves as files, from the run's folder alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coevo.errors import UserError
from coevo.files import write_atomic
from coevo.records import Json
from coevo.report.curves import Group, groups
from coevo.report.html import Block, Note, Picture, Section, page
from coevo.report.plots import comparison, legend, save, svg_text
from coevo.report.run_facts import best_answer, learning, result, setting, status_note, what_ran
from coevo.report.run_tables import batch_table, probe_table, status_table
from coevo.runs.folder import RunFolder
from coevo.runs.summary import summarize
from coevo.runs.yardstick import Judge, points


@dataclass(frozen=True, slots=True)
class Written:
    """Where the report and its curves are."""

    html: Path
    svg: Path
    png: Path


def write(folder: RunFolder, out: Path | None = None) -> Written:
    """Write the report of a run, whatever state the run is in.

    Args:
        folder: of the run.
        out: the HTML file; None: `report.html` and `curves.*` in the run's folder. Beside a file of another name
            the curves are named after it (`a.html`: `a-curves.svg`), so that reports do not overwrite each other.

    Raises:
        UserError: it cannot be written there.
        CheckFailedError: the run's folder is damaged.
    """
    target = folder.path / "report.html" if out is None else out
    if target.is_dir() or not target.name:
        raise UserError(f"--out got {str(target)!r}, which is a folder; give a file, such as {target / 'report.html'}")
    if target.suffix.lower() not in (".html", ".htm"):
        # What it stood for before would be gone: a journal, a device.
        raise UserError(f"--out got {str(target)!r}: the report is an HTML file; give a name that ends in .html")
    stem = target.with_name("curves" if target.name == "report.html" else f"{target.stem}-curves")
    for path in (target, stem.with_suffix(".svg"), stem.with_suffix(".png")):
        if os.path.lexists(path) and not path.is_file():
            raise UserError(f"--out got {str(target)!r}, and {str(path)!r} is no ordinary file; choose another name")
    summary, plots, text = _render(folder)
    title = f"{summary['name']}: {summary['task']}, param {summary['param']}, context {summary['context']}"
    try:
        write_atomic(target, text)
        svg, png = save(comparison([panel for group in plots for panel in group.panels], title, own=True), stem)
    except OSError as error:
        raise UserError(
            f"cannot write the report {str(target)!r}: {error.strerror}; choose another place with --out"
        ) from None
    return Written(target, svg, png)


def _render(folder: RunFolder) -> tuple[Mapping[str, Json], list[Group], str]:
    summary, info = summarize(folder), folder.info()
    history = folder.journal.history()
    batches, probes = points(history.told, Judge.of(info))
    plots = groups(batches, probes, info.get("task") or {})
    sections = [
        Section("Result", [*status_note(summary, len(batches)), *result(summary)]),
        Section("Is it learning?", learning(summary)),
        Section("Best answer", best_answer(summary, folder)),
        *(Section(group.title, _pictures(group)) for group in plots),
        Section("What ran", what_ran(summary)),
        Section("Answers", status_table(summary)),
        Section("Batches", batch_table(batches)),
        Section("Probes", probe_table(probes)),
        Section("Configuration and versions", setting(folder, info)),
    ]
    what = f"Task {summary['task']}, param {summary['param']}, context {summary['context']}, model {summary['model']}"
    text = page(f"Run {summary['name']}", sections, subtitle=what, badge=str(summary["status"]))
    return summary, plots, text


def _pictures(group: Group) -> Sequence[Block]:
    figure = comparison(group.panels, own=True)
    return [Note(group.note, "quiet"), Picture(svg_text(figure, group.title), legend(figure))]
