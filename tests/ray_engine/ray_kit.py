"""Asking an engine, and running the command line in a process of its own."""

import asyncio
import subprocess
import sys

import fakes

from coevo.records import Request
from coevo.runs.chunks import read_chunks
from coevo.runs.codec import to_json
from tests.loop_kit import without_time

PATIENCE_SECONDS = 180


def ask(text, *, seed=0):
    return Request(({"role": "user", "content": text},), seed=seed)


async def complete(engine, text, perturbation=None):
    async with engine.lease(perturbation) as policy:
        (completion,) = await policy.complete([ask(text)])
        return completion.text


def said(engine, text, perturbation=None):
    """What the engine answers to one request."""
    return asyncio.run(complete(engine, text, perturbation))


def start(place, *arguments, environment=None):
    return subprocess.Popen(
        [sys.executable, "-m", "coevo", *arguments],
        cwd=place,
        text=True,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )


def call(place, *arguments, environment=None):
    process = start(place, *arguments, environment=environment)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, out, err


def committed(folder):
    return [without_time(line) for line in folder.journal.lines() if line["kind"] != "stop"]


def rollouts(folder):
    files = sorted((folder.path / "rollouts").iterdir())
    return [without_time(to_json(r)) for file in files for chunk in read_chunks(file) for r in chunk]


def small_run(name, engine, options):
    """On an engine of three numbers: what is tested is who is left, and a torch in every process takes long."""
    sets = {**{f"{engine}.{key}": value for key, value in options.items()}, "es.population": 4, "rollouts.chunk": 2}
    return [
        "run", "--plugin", fakes.__file__, "--task", "aim", "--context", "fixed", "--param", "es", "--engine", engine,
        "--model", "", "--generations", "2", "--name", name, "--quiet", "--set", "probe.every=0",
        *(part for key, value in sets.items() for part in ("--set", f"{key}={value}")),
    ]  # fmt: skip
