"""What a child process of the doctor does: one question, its answer as JSON in a file.

python -m coevo.tools.doctor.inside QUESTION ARGUMENTS RESULT
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from coevo.errors import CoevoError
from coevo.optional import Starts, closed, described, offers
from coevo.records import Json


def torch_facts(arguments: Mapping[str, Any]) -> dict[str, Json]:
    """Import torch and ask it for devices."""
    torch: Any = importlib.import_module("torch")
    cuda = bool(torch.cuda.is_available())
    devices = [str(torch.cuda.get_device_name(i)) for i in range(torch.cuda.device_count())] if cuda else []
    return {
        "version": str(torch.__version__),
        "cuda": str(torch.version.cuda or ""),
        "devices": devices,
        "bf16": bool(torch.cuda.is_bf16_supported()) if cuda else None,
        "threads": int(torch.get_num_threads()),
    }


def import_package(arguments: Mapping[str, Any]) -> dict[str, Json]:
    """Import a package, and names of it that are only loaded on use."""
    module = importlib.import_module(str(arguments["package"]))
    for name in arguments.get("names", ()):
        getattr(module, name)
    return {"version": str(getattr(module, "__version__", ""))}


def sandbox(arguments: Mapping[str, Any]) -> dict[str, Json]:
    """Start a task and let it describe itself."""
    task: Any = _registries(arguments).tasks.create(str(arguments["task"]), arguments["options"])
    try:
        if offers(task, Starts):
            task.start()
        return {"describe": dict(described(task))}
    finally:
        closed(task)


def engine(arguments: Mapping[str, Any]) -> dict[str, Json]:
    """Start an engine, which runs its canary, and let the centre generate one token."""
    from coevo.app.parts import make_engine

    started = time.monotonic()
    made: Any = make_engine(
        str(arguments["engine"]), arguments["options"], model=str(arguments["model"]), plugins=arguments["plugins"]
    )
    ready = time.monotonic() - started
    try:
        completion = asyncio.run(_one_token(made))
        return {
            "text": completion.text,
            "tokens": len(completion.completion_ids),
            "finish_reason": completion.finish_reason,
            "start_seconds": ready,
            "adapts": bool(made.capabilities.adapts),
            "describe": dict(described(made)),
        }
    finally:
        closed(made)


async def _one_token(made: Any) -> Any:
    from coevo.records import Request, Sampling

    sampling = Sampling(temperature=0.0, max_new_tokens=1)
    request = Request(({"role": "user", "content": "Say one word."},), sampling=sampling, seed=1)
    async with made.lease(None) as policy:
        (completion,) = await policy.complete([request])
        return completion


def _registries(arguments: Mapping[str, Any]) -> Any:
    from coevo.host import discovery

    return discovery.load(arguments.get("plugins", ()), local="known").registries()


QUESTIONS: dict[str, Callable[[Mapping[str, Any]], dict[str, Json]]] = {
    "torch": torch_facts,
    "import": import_package,
    "sandbox": sandbox,
    "engine": engine,
}


def main(question: str, arguments: str, result: str) -> None:
    """Answer one question; an error is an answer too."""
    try:
        told = QUESTIONS[question](json.loads(arguments))
    except CoevoError as error:
        told = {"error": str(error), "kind": type(error).__name__}
    except Exception as error:  # noqa: BLE001 - whatever an import or an engine raises is what the doctor looks for
        told = {"error": f"{type(error).__name__}: {error}", "kind": type(error).__name__}
    Path(result).write_text(json.dumps(told), encoding="utf-8")
    # Some libraries hang when they are taken down; the answer is there.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
