"""What a machine has, looked up without a library that would start anything on a device."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SECONDS = 20.0
"""How long the driver's own tool may take."""

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device as its driver tells: name, memory in bytes, version of the driver."""

    name: str
    memory: int
    driver: str


def gpus() -> list[Gpu]:
    """The CUDA devices, asked of `nvidia-smi`; empty where it is missing, fails or does not answer."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse(done.stdout) if done.returncode == 0 else []


def parse(text: str) -> list[Gpu]:
    """The tool's lines `name, MiB, driver`; a line of another form is no device that can be used."""
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    return [Gpu(row[0], int(row[1]) * MIB, row[2]) for row in rows if len(row) == 3 and row[1].isdecimal()]


def host_memory() -> int:
    """Bytes of main memory that this process may use: the machine's, or its control group's where that is less."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
    told = [text for path in limits if (text := _text(path)).isdecimal()]
    return min([whole, *(int(text) for text in told)])


def cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_flags() -> frozenset[str]:
    """Flags of the first processor, empty where the system does not list them."""
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def processor() -> str:
    """The model of the first processor, as the system names it; empty where it does not."""
    for line in _text(Path("/proc/cpuinfo")).splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.processor()


def free_disk(path: Path) -> int:
    """Free bytes where `path` is or would be made."""
    at = path.absolute()
    while not at.exists():
        at = at.parent
    return shutil.disk_usage(at).free


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
