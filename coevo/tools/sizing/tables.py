"""A plan as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coevo.records import Json
from coevo.report.numbers import ABSENT, count, duration, table
from coevo.tools.sizing.constants import GB, MB
from coevo.tools.sizing.verdict import devices


def size(number: float | None) -> str:
    """Bytes as a reader wants them."""
    if number is None:
        return ABSENT
    for unit, name, digits in ((GB, "GB", 1), (MB, "MB", 1), (1000, "kB", 1)):
        if number >= unit:
            return f"{number / unit:,.{digits}f} {name}"
    return f"{number:,.0f} B"


def text(plan: Mapping[str, Json]) -> str:
    """The whole plan."""
    parts = [_head(plan), _rollouts(plan)]
    if plan["served"] == "elsewhere":
        parts.append("The model is served elsewhere: nothing of it is needed on this machine.")
        return "\n\n".join(parts)
    device: Sequence[Mapping[str, Any]] = plan["device"]
    if device:
        where = devices(plan["deployment"]["devices"], plan["machine"]["gpus"])
        parts.append(_memory(where, device))
    parts += [_memory("main memory of the node", plan["host"]), _moved(plan), _time(plan), _verdicts(plan)]
    return "\n\n".join(parts)


def _head(plan: Mapping[str, Any]) -> str:
    model = plan["model"]
    what = f"{plan['param']} and {plan['context']} on {plan['task']}, {count(plan['generations'], 'generation')}"
    if plan["served"] == "elsewhere":
        return f"{model['name']}: {what}"
    how = plan["deployment"]
    engine = f"{how['pool']} of {how['engine']}" if how["pool"] else how["engine"]
    spread = f"{count(how['workers'], 'worker')} of {count(how['shards'], 'device')}" if how["on_gpu"] else "the CPU"
    context = f"{how['context']:,} tokens" if how["context"] else "not known"
    hybrid = f", {model['full_layers']} of {model['layers']} layers with a key/value cache"
    return "\n".join([
        f"{model['name']}: {model['parameters']:,} parameters{hybrid if model['full_layers'] else ''}",
        f"shape from: {model['source']}",
        f"{what}; engine {engine}, {spread}, {how['dtype']}, context {context}, fp32 master on {how['master']}",
        f"held against: {plan['machine']['told']}",
    ])  # fmt: skip


def _rollouts(plan: Mapping[str, Any]) -> str:
    told = plan["rollouts"]
    if told["problem"]:
        return f"rollouts of a generation: not known, because {told['problem']}"
    rows = [
        [name, f"{w['rollouts']:,}", f"{w['calls']:,}", f"{w['leases']:,}", f"{w['updates']:,}", f"{w['tokens']:,}"]
        for name, w in (("first", told["first"]), ("every other", told["usual"]))
    ]
    return table(rows, ("generation, at most", "rollouts", "model calls", "members served", "updates", "tokens"))


def _memory(where: str, rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [[row["what"], size(row["bytes"]), row["note"]] for row in rows]
    return table(lines, (where, "", "what it is made of"))


def _moved(plan: Mapping[str, Any]) -> str:
    disk, network = plan["disk"], plan["network"]
    anchors = f"{count(disk['anchors'], 'anchor')} of {size(disk['anchor'])}" if disk["anchors"] else "no anchor"
    rows = [
        ["disk, once", f"checkpoint {size(disk['checkpoint'])}"],
        ["disk, a generation", f"journal {size(disk['journal_generation'])}, "
                               f"rollouts at most {size(disk['rollouts_generation'])}"],
        ["disk, the run", f"{size(disk['run'])} with {anchors}"],
        ["network, a generation", f"seeds and numbers {size(network['es'])}; all weights to every worker would be "
                                  f"{size(network['broadcast'])}"],
    ]  # fmt: skip
    return table(rows)


def _time(plan: Mapping[str, Any]) -> str:
    told = plan["seconds"]
    if plan["rollouts"]["problem"]:
        return f"one member ready in about {told['serve']:.2g} s (estimate)"
    rows = [
        ["make members ready", _seconds(told["noise"]), f"{_seconds(told['serve'])} each"],
        ["rollouts", _seconds(told["rollouts"]), "if every answer has its full length"],
        ["update", _seconds(told["updates"]), f"{_seconds(told['update'])} each"],
        ["sum", _seconds(told["generation"]), "estimates: see docs/memory.md"],
    ]
    return table(rows, ("time of a generation", "", ""))


def _seconds(number: float) -> str:
    return duration(number) if number >= 60 else f"{number:.2g} s"


def _verdicts(plan: Mapping[str, Any]) -> str:
    rows: list[list[str]] = []
    for verdict in plan["verdicts"]:
        plain = verdict["where"] == "number of GPUs"
        needs, has = (str(n) if plain and n is not None else size(n) for n in (verdict["needs"], verdict["has"]))
        state = {True: "fits", False: "DOES NOT FIT", None: "not judged"}[verdict["fits"]]
        told = f"needs {needs} of {has}" if verdict["has"] is not None else f"needs {needs}"
        rows.append([verdict["where"], state, told, f"mend: {verdict['mend']}" if verdict["mend"] else ""])
    return table(rows, ("verdict", "", "", ""))
