"""`evaluator_key`: a hash over everything that the result of a program may depend on besides the program."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path

from coevo.records import Json
from coevo.sandbox import PROTOCOL, Limits
from coevo_heuristics.problem import Problem

_MOST_FILES = 1000
_MOST_BYTES = 256 << 20
_LEFT_OUT = ("__pycache__", "runs")


class NoIdentityError(Exception):
    """The problem cannot be told from another: a reason in words."""


def evaluator_key(
    problem: Problem, split: str, limits: Limits, options: Mapping[str, Json], isolation: Mapping[str, bool]
) -> str:
    """32 hex digits.

    In it are the files of the problem's folder (without the templates, which are part of a program, hidden files,
    and folders named `runs` and `__pycache__`), split, options, entry, limits, isolation, the Python, every
    installed package with its version, the machine's kind, and how coevo's sandbox works.

    Args:
        problem: whose folder is read.
        split: as evaluate.py calls it.
        limits: of a candidate.
        options: of `instances`.
        isolation: what the sandbox holds back.

    Raises:
        NoIdentityError: the folder cannot be read, or has too much in it.
    """
    digest = hashlib.blake2b(digest_size=16)
    facts = [split, problem.table.entry, asdict(limits), options, dict(isolation), PROTOCOL, surroundings()]
    digest.update(json.dumps(facts, sort_keys=True).encode())
    for name, content in _files(problem):
        digest.update(f"\n{len(name)}:{name}:{len(content)}:".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()


def _files(problem: Problem) -> Iterator[tuple[str, bytes]]:
    templates = {hole.template for hole in problem.table.holes.values()}
    count = size = 0
    try:
        for path in sorted(problem.folder.rglob("*")):
            parts = path.relative_to(problem.folder).parts
            name = "/".join(parts)
            hidden = any(part.startswith(".") or part in _LEFT_OUT for part in parts)
            if hidden or name in templates or not path.is_file():
                continue
            count, size = count + 1, size + path.stat().st_size
            if count > _MOST_FILES or size > _MOST_BYTES:
                raise NoIdentityError(
                    f"more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MB are in {str(problem.folder)!r}"
                )
            yield name, path.read_bytes()
    except OSError as error:
        raise NoIdentityError(f"{str(problem.folder)!r} cannot be read whole: {error}") from error


@cache
def surroundings() -> tuple[str, ...]:
    """Python, packages and machine."""
    packages = {f"{found.metadata['Name']} {found.version}" for found in importlib.metadata.distributions()}
    return (
        platform.python_implementation(),
        platform.python_version(),
        platform.system(),
        platform.machine(),
        _processor(),
        *sorted(packages),
    )


def _processor() -> str:
    """The model of the processor: numpy takes other instructions on another one, and may round otherwise."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("model name", "CPU part"))), platform.processor())
