"""What was measured and what follows from it, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from coevo.host.config import to_toml
from coevo.records import Json
from coevo.report.numbers import ABSENT, count, duration, number, percent, table

HEADS = (
    "sigma", "moved", "valid", "credit", "change", "within", "between", "F", "interval", "reliability", "gain",
    "equal", "note",
)  # fmt: skip


def text(found: Mapping[str, Json]) -> str:
    """All of it: what was asked, the table, the verdict and lines to paste."""
    where = f"the end of run {found['run']}" if found["run"] else "the base model"
    centre: Mapping[str, float] = found["centre"]
    facts = [
        ["what", f"task {found['task']}, updater {found['updater']}, seed {found['seed']}"],
        ["model", f"{found['model']} on {found['engine']}; {where}, weights {str(found['weights_digest'])[:16]}"],
        ["asked", f"{found['members']} members x {_answers(found)}, the same for all members and sigmas"],
        [
            "centre",
            f"{count(found['centre']['answers'], 'answer')}, {percent(centre['valid'])} valid, "
            f"mean credit {_three(centre['credit'])}",
        ],
        ["spent", f"{count(found['calls'], 'call')}, {count(found['tokens'], 'token')}, {duration(found['seconds'])}"],
    ]
    parts = [
        table(facts),
        table([_row(line, found["proposal"]) for line in found["sigmas"]], HEADS),
        f"verdict: {found['verdict']}",
    ]
    proposal = cast("Mapping[str, Json] | None", found["proposal"])
    if proposal is not None:
        parts += [_promise(proposal), _lines(str(found["updater"]), proposal)]
    return "\n\n".join(parts)


def _answers(found: Mapping[str, Json]) -> str:
    examples = int(found["examples"])
    return count(found["answers"], "answer") + (f" (to {examples} examples)" if examples > 1 else "")


def _row(line: Mapping[str, Json], proposal: Mapping[str, Json] | None) -> list[str]:
    low, high = line["f_interval"]
    chosen = proposal is not None and proposal["sigma"] == line["sigma"]
    return [
        number(line["sigma"]), percent(line["moved"]), percent(line["valid"]), _three(line["credit"]),
        f"{line['change']:+.3f} ± {line['change_margin']:.3f}", _three(line["within"]), _three(line["between"]),
        _two(line["f"]), ABSENT if math.isnan(low) else f"{low:.2f}-{high:.2f}", f"{line['reliability']:.2f}",
        f"{line['gain']:+.3f}",
        percent(line["equal"]), "proposed" if chosen else str(line["obstacle"]),
    ]  # fmt: skip


def _two(value: float) -> str:
    return ABSENT if math.isnan(value) else f"{value:.2f}"


def _three(value: float) -> str:
    return f"{value:.3f}"


def _promise(proposal: Mapping[str, Json]) -> str:
    answers, without = proposal["answers"], proposal["answers_without_common_random_numbers"]
    said = (
        f"proposal: {count(answers, 'answer')} a member make {percent(proposal['reliability'])} of the differences "
        f"between members real; expected gain of the first update about {proposal['gain']:+.2f} credit"
    )
    if proposal["common_random_numbers"] and without != answers:
        said += f"; without common random numbers it would take {without} answers"
    return said


def _lines(updater: str, proposal: Mapping[str, Json]) -> str:
    """The same sizes for the command line and for a file."""
    keys = ["sigma", "alpha", "answers", *(["common_random_numbers"] if proposal["common_random_numbers"] else [])]
    options = {key: proposal[key] for key in keys}
    assigned = [f"--set {updater}.{key}={str(value).lower()}" for key, value in options.items()]
    command = " ".join([*assigned, f"--population {proposal['population']}"])
    return f"{command}\n\n{to_toml({'population': proposal['population'], updater: options})}".rstrip()
