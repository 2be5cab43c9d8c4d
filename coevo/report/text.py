"""A run as plain text: `coevo show`, and what `coevo run` prints at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coevo.records import OUTRACED, Json
from coevo.report.numbers import count, duration, number, objective, percent, table
from coevo.report.run_tables import batch_table, probe_table
from coevo.runs.folder import RunFolder
from coevo.runs.yardstick import Judge, points
from coevo.text import printable

CODE_LINES = 40
"""An answer longer than this is shown by its path alone."""


def show(summary: Mapping[str, Json], folder: RunFolder, lines: Sequence[Mapping[str, Json]]) -> str:
    """All of a run: what it is, how far it came, its best answer and a row for every probe and batch.

    Args:
        summary: of the run.
        folder: its own.
        lines: of its journal, those of batches and probes.
    """
    batches, probes = points(lines, Judge.of(folder.info()))
    drawn = [grid.text() for grid in (*probe_table(probes, narrow=True), *batch_table(batches, narrow=True))]
    parts = [table(_facts(summary, folder)), _best(summary, folder), *drawn, _left_out(lines)]
    return "\n\n".join(part for part in parts if part)


def _nothing(summary: Mapping[str, Json]) -> str:
    """What became of the answers where none was valid."""
    statuses = sorted(summary["statuses"].items(), key=lambda item: -item[1])
    counted = ", ".join(f"{count:,} {status}" for status, count in statuses)
    said = f"no valid answer was found ({counted})" if counted else "no valid answer was found"
    if statuses and statuses[0][0] == "context_overflow":
        said += (
            "; prompt and answer do not fit the model's context: lower sampling.max_new_tokens, or raise the context "
            f"where it can be (coevo options engine {summary['engine']})"
        )
    return said


def result(summary: Mapping[str, Json], folder: RunFolder) -> str:
    """The end of a run: the best answer and how to look further."""
    reason = str(summary["reason"])
    why = "all generations done" if reason == "generations" else f"the next batch could exceed --{reason}"
    spent = _spent(summary)
    head = f"run {summary['name']}: {summary['status']} ({why}); {spent}"
    best = _best(summary, folder) or _nothing(summary)
    verdict = str(summary["learning"]["verdict"])
    learned = f"\n\nlearning: {verdict}" if verdict else ""
    return f"{head}\n\n{best}{learned}\n\nlook further: coevo show {folder.address}, coevo report {folder.address}"


def _spent(summary: Mapping[str, Json]) -> str:
    """Calls, tokens, money where the engine counts it, and time."""
    cost = "" if summary["cost"] is None else f", cost {number(summary['cost'])}"
    calls, tokens = count(summary["calls"], "call"), count(summary["tokens"], "token")
    lost = summary["uncommitted"]["calls"] if summary["status"] != "running" else 0
    calls += f" ({lost:,} cut off)" if lost else ""
    return f"{calls}, {tokens}{cost}, {duration(summary['seconds'])}"


def _served(folder: RunFolder) -> str:
    """What the engine says of weights that are not served from the master."""
    how = folder.info().get("describe", {}).get("weights")
    return f", weights {how}: the journal rebuilds what was meant, not what answered" if how else ""


def _facts(summary: Mapping[str, Json], folder: RunFolder) -> list[list[str]]:
    s = summary
    status = s["status"] if not s["reason"] or s["reason"] == s["status"] else f"{s['status']} ({s['reason']})"
    rows = [
        ["run", f"{s['name']}: {status}"],
        ["folder", str(s["path"])],
        ["what", f"task {s['task']}, param {s['param']}, context {s['context']}, seed {s['seed']}"],
        ["model", f"{s['model']} on {s['engine']}{_served(folder)}"],
        [
            "progress",
            f"{s['generations']} of {count(s['generations_planned'], 'generation')}, "
            f"{count(s['batches'], 'batch', 'batches')}, {count(s['updates'], 'update')} of the weights",
        ],
        ["answers", _answers(s["statuses"], s["valid_rate"])],
        ["spent", _spent(s)],
        ["weights", _weights(s)],
    ]
    if s["learning"]["verdict"]:
        rows.append(["learning", str(s["learning"]["verdict"])])
    if s["message"]:
        rows.append(["error", printable(str(s["message"]))])
    for one in folder.info().get("accepted", ()):
        said = printable("; ".join(str(change) for change in one["changes"]))
        rows.append(["changed", f"{said} (accepted before batch {one['batch']} of generation {one['generation']})"])
    if s["status"] in ("interrupted", "failed"):
        rows.append(["go on", f"coevo resume {RunFolder(Path(s['path'])).address}"])
    return rows


def _answers(statuses: Mapping[str, int], valid: float) -> str:
    total = sum(statuses.values())
    if not total:
        return "none yet"
    most = sorted(statuses.items(), key=lambda item: -item[1])
    return f"{total:,}, {percent(valid)} valid ({', '.join(f'{n:,} {status}' for status, n in most)})"


def _weights(summary: Mapping[str, Json]) -> str:
    base, now = str(summary["base_digest"])[:16], str(summary["weights_digest"])[:16]
    zero: Sequence[Mapping[str, Json]] = summary["zero_updates"]
    text = f"{base} → {now}" if now != base else f"{base or 'not loaded yet'}, did not move"
    if zero:
        text += f"; {count(len(zero), 'zero update')}, the last because {zero[-1]['reason']}"
    return text


def _best(summary: Mapping[str, Json], folder: RunFolder) -> str:
    best: Mapping[str, Json] | None = summary["best"]
    if best is None:
        return ""
    told = "; ".join([f"objective {objective(best['objective'])}", *worth(summary)])
    where = f"generation {best['generation']}, batch {best['batch']}, rollout {best['rollout']}"
    rows = [["best", told], ["found in", where], ["path", str(best["path"])]]
    if best["splits"]:
        rows.append(["held out", "; ".join(_on_split(*item) for item in best["splits"].items())])
    answer = _answer(folder)
    return table(rows) + (f"\n\n{_indent(answer)}" if answer else "")


def worth(summary: Mapping[str, Json]) -> list[str]:
    """How good the best answer is, if there is one, beside reference and baseline."""
    best, reference, baseline = summary["best"], summary["reference"], summary["baseline"]
    told: list[str] = []
    if best is None:
        return told
    if reference is not None:
        # There is no share of nothing.
        gap = f"gap {percent(best['gap'], 2)} to {pair(reference)}"
        told.append(gap if best["gap"] is not None else f"{reference[0]} is {objective(reference[1])}")
    if baseline is not None:
        told.append(f"{'beats' if best['beats_baseline'] else 'does not beat'} {pair(baseline)}")
    return told


def pair(named: Sequence[Json]) -> str:
    """A name and the value that it stands for."""
    return f"{named[0]} ({objective(named[1])})"


def _on_split(split: str, judged: Mapping[str, Json]) -> str:
    if judged["status"] != "ok":
        return f"{split} {judged['status']}"
    instances = judged["instances"]
    return f"{split} {objective(judged['objective'])}" + (f" ({instances:,} instances)" if instances else "")


def _answer(folder: RunFolder) -> str:
    answer = printable(str(folder.best().get("answer", ""))).strip("\n")
    return answer if answer.count("\n") < CODE_LINES else ""


def _indent(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _left_out(batches: Sequence[Mapping[str, Json]]) -> str:
    stopped = sum(line["statuses"].get(OUTRACED, 0) for line in batches)
    return f"means leave out {count(stopped, 'outraced answer')}, whose objectives nobody knows" if stopped else ""
