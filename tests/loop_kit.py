"""Runs of the small engine and task of `fakes`, and what they left on disk."""

import json
from pathlib import Path

import fakes
import pluggy

import coevo_es
import coevo_none
from coevo.host import hookspecs
from coevo.host.discovery import Plugins
from coevo.runs.chunks import read_chunks
from coevo.runs.codec import to_json
from coevo.runs.folder import RunFolder


def plugins(*extra):
    manager = pluggy.PluginManager("coevo")
    manager.add_hookspecs(hookspecs)
    for plugin in (fakes, coevo_es, coevo_none, *extra):
        manager.register(plugin)
    return Plugins(manager)


def config(name="a", **changes):
    es = {"population": 8, "sigma": 0.3, "alpha": 0.3, "sigma_schedule": "constant"}
    base = {"task": "aim", "engine": "numbers", "context": "fixed", "param": "es", "generations": 3}
    return {**base, "name": name, "loggers": [], "es": es, "probe": {"every": 0}, **changes}


def without_time(value):
    if isinstance(value, dict):
        return {k: without_time(v) for k, v in value.items() if k not in ("time", "check")}
    return [without_time(v) for v in value] if isinstance(value, list) else value


def journal(name):
    text = Path(f"runs/{name}/journal.jsonl").read_text(encoding="utf-8")
    return [without_time(json.loads(line)) for line in text.splitlines()]


def rollouts(name):
    files = sorted(RunFolder.find(name).path.joinpath("rollouts").iterdir())
    return [without_time(to_json(r)) for f in files for chunk in read_chunks(f) for r in chunk]
