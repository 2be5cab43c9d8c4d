"""Engines on the small server, questions to them, and runs with them."""

import asyncio
from pathlib import Path

import loop_kit

import coevo
import coevo_openai
import coevo_sample
from coevo.records import Request, Sampling
from coevo_openai import OpenAIEngine
from tests.openai_engine.api_server import MODEL

KEY = "sk-proj-0123456789abcdefghijklmnop"


def engine_on(server, **options):
    return OpenAIEngine(MODEL, base_url=server.url, **{"retries": 2, "budget_seconds": 60.0, **options})


def request(text="say number 1", **changes):
    changes.setdefault("sampling", Sampling(max_new_tokens=20))
    return Request(({"role": "user", "content": text},), **changes)


def ask(engine, *requests):
    """The completions of one lease."""

    async def go():
        async with engine.lease(None) as policy:
            return await policy.complete(requests or [request()])

    return asyncio.run(go())


def failure_of(call, *arguments, **options):
    """What a call raised."""
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - it is looked at
        return error
    raise AssertionError("it did not fail")


def run_on(server, name="a", **changes):
    """A context-only run of the small task; its summary."""
    options = {"base_url": server.url, "retries": 1, "budget_seconds": 60.0, **changes.pop("openai", {})}
    base = {
        "task": "aim", "engine": "openai", "model": MODEL, "param": "none", "context": "fixed", "generations": 1,
        "name": name, "loggers": [], "openai": options,
    }  # fmt: skip
    return coevo.run({**base, **changes}, loop_kit.plugins(coevo_openai, coevo_sample))


def files_with(text, folder="."):
    """Files anywhere below a folder that hold a text."""
    return [str(p) for p in Path(folder).rglob("*") if p.is_file() and text.encode() in p.read_bytes()]
