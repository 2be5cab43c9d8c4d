"""Batches, probes and statuses of a run as tables: those of `coevo show` and of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from coevo.records import Json
from coevo.report.numbers import ABSENT, duration, number, objective, percent
from coevo.report.tables import Column, Table
from coevo.runs.yardstick import Point

BATCH: Sequence[Column[Point]] = (
    Column("gen", lambda p: str(p.generation)),
    Column("batch", lambda p: str(p.batch)),
    Column("op", lambda p: p.operator, words=True),
    Column("members", lambda p: str(p.members or ABSENT)),
    Column("answers", lambda p: f"{p.answers:,}"),
    Column("valid", lambda p: percent(p.valid)),
    Column("better", lambda p: percent(p.better)),
    Column("best", lambda p: objective(p.best_so_far)),
    Column("mean", lambda p: objective(p.mean)),
    Column("sigma", lambda p: number(p.metrics.get("sigma"))),
    Column("moved", lambda p: percent(p.metrics.get("moved"))),
    Column("informative", lambda p: _of(p.metrics.get("informative"), p.metrics.get("members_scored"))),
    Column("ratio", lambda p: number(p.metrics.get("variance_ratio"), 3)),
    Column("cosine", lambda p: number(p.metrics.get("cosine"), 3)),
    Column("of all", lambda p: number(p.metrics.get("cosine_run"), 3)),
    Column("tokens/s", lambda p: number(p.tokens / p.seconds if p.seconds else None, 3)),
    Column("time", lambda p: duration(p.seconds)),
    Column("note", lambda p: f"no step: {p.zero_update}" if p.zero_update else "", words=True),
)

PROBE: Sequence[Column[Point]] = (
    Column("probe", lambda p: f"gen {p.generation}", words=True),
    Column("updates", lambda p: str(p.updates)),
    Column("answers", lambda p: f"{p.answers:,}"),
    Column("valid", lambda p: percent(p.valid, 1)),
    Column("better", lambda p: percent(p.better, 1)),
    Column("score", lambda p: number(p.score, 3)),
    Column("mean", lambda p: objective(p.mean)),
    Column("best", lambda p: objective(p.best)),
    Column("calls", lambda p: f"{p.calls:,}"),
    Column("time", lambda p: duration(p.seconds)),
)

STATUS: Sequence[Column[tuple[str, int, int]]] = (
    Column("status", lambda s: s[0], words=True),
    Column("answers", lambda s: f"{s[1]:,}"),
    Column("share", lambda s: percent(s[1] / s[2], 1)),
)

R = TypeVar("R")


def batch_table(batches: Sequence[Point], *, narrow: bool = False) -> list[Table]:
    """A row a batch; `narrow` leaves out what a terminal has no room for."""
    without = ("better", "time") if narrow else ()
    return _table("Batches in order; best is of the whole run until after the batch", BATCH, batches, without)


def probe_table(probes: Sequence[Point], *, narrow: bool = False) -> list[Table]:
    """A row a probe; `narrow` as above."""
    without = ("best", "calls", "time") if narrow else ()
    return _table("Probes in order; updates and calls are of the whole run until then", PROBE, probes, without)


def status_table(summary: Mapping[str, Json]) -> list[Table]:
    """How many answers ended how, the most frequent first."""
    statuses: Mapping[str, int] = summary["statuses"]
    total = sum(statuses.values())
    most = sorted(statuses.items(), key=lambda item: -item[1])
    return _table("How the answers of the search ended", STATUS, [(name, n, total) for name, n in most if n])


def _table(caption: str, columns: Sequence[Column[R]], rows: Sequence[R], without: Sequence[str] = ()) -> list[Table]:
    """The table without columns that say nothing, and no table without rows."""
    kept = [column for column in columns if column.head not in without]
    return [Table.of(caption, kept, rows).telling()] if rows else []


def _of(part: float | None, whole: float | None) -> str:
    return ABSENT if part is None or whole is None else f"{part:g} of {whole:g}"
