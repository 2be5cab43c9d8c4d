"""Batches, probes and statuses of a run as tables of its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coevo.records import Json
from coevo.report.html import Block, Table
from coevo.report.numbers import ABSENT, duration, number, objective, percent
from coevo.runs.yardstick import Point


def batch_table(batches: Sequence[Point], lines: Sequence[Mapping[str, Json]]) -> list[Block]:
    """A row a batch; columns that say nothing are left out.

    Args:
        batches: the points.
        lines: the journal's lines of the same batches.
    """
    heads = (
        "gen", "batch", "operator", "members", "answers", "valid", "better", "best so far", "mean", "sigma", "moved",
        "informative", "ratio", "cosine", "tokens/s", "time", "note",
    )  # fmt: skip
    rows: list[list[str]] = []
    for p, line in zip(batches, lines, strict=True):
        m = p.metrics
        tokens = (line["prompt_tokens"] + line["completion_tokens"]) / p.seconds if p.seconds else None
        rows.append(
            [
                str(p.generation), str(p.batch), p.operator, str(p.members or ""), f"{p.answers:,}", percent(p.valid),
                percent(p.better), objective(p.best_so_far), objective(p.mean), number(m.get("sigma")),
                percent(m.get("moved")), _of(m.get("informative"), m.get("members_scored")),
                number(m.get("variance_ratio"), 3), number(m.get("cosine"), 3), number(tokens, 3),
                duration(p.seconds), f"no step: {p.zero_update}" if p.zero_update else "",
            ]
        )  # fmt: skip
    return _table("Batches in order; best so far is of the whole run until after the batch", heads, rows)


def probe_table(probes: Sequence[Point]) -> list[Block]:
    """A row a probe."""
    heads = ("gen", "updates", "answers", "valid", "better", "score", "best", "mean", "calls", "time")
    rows = [
        [
            str(p.generation), str(p.updates), f"{p.answers:,}", percent(p.valid, 1), percent(p.better, 1),
            number(p.score), objective(p.best), objective(p.mean), f"{p.calls:,}", duration(p.seconds),
        ]
        for p in probes
    ]  # fmt: skip
    return _table("Probes in order; updates and calls are of the whole run until then", heads, rows)


def status_table(summary: Mapping[str, Json]) -> list[Block]:
    """How many answers ended how, the most frequent first."""
    statuses: Mapping[str, int] = summary["statuses"]
    total = sum(statuses.values())
    most = sorted(statuses.items(), key=lambda item: -item[1])
    rows = [[status, f"{n:,}", percent(n / total, 1)] for status, n in most if n]
    return _table("How the answers of the search ended", ("status", "answers", "share"), rows)


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Block]:
    kept = [i for i in range(len(heads)) if any(row[i] not in ("", ABSENT) for row in rows)]
    if not rows:
        return []
    told = [[row[i] for i in kept] for row in rows]
    return [Table(caption, [heads[i] for i in kept], told, words=("operator", "note", "status"))]


def _of(part: float | None, whole: float | None) -> str:
    return ABSENT if part is None or whole is None else f"{part:g} of {whole:g}"
