"""What vLLM's server needs to be told on the CPU, where its own defaults are for a machine that has nothing else to do.

By itself it wants nine tenths of the main memory, compiles, and prefills long prompts in parts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from coevo.records import Json
from coevo.weights.stored import read_json, text_part

CONTEXT = 8192
"""Longest prompt plus answer unless another is asked for: one forward must have room for a whole prompt."""
FORWARD = 4096
"""Tokens of one forward, at least."""
SPACE = "VLLM_CPU_KVCACHE_SPACE"
"""Where vLLM reads the size of its key/value cache, in GiB."""
SPACE_GIB = 2
SIZES = ("gpu-memory-utilization", "kv-cache-memory-bytes")
"""Options that decide about the same memory."""


def on_cpu() -> bool:
    """Whether the vLLM that is installed is one for the CPU; vLLM itself decides by the same names."""
    try:
        return "cpu" in version("vllm") or sys.platform == "darwin"
    except PackageNotFoundError:
        pass
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return sys.platform == "darwin"
    return True


def options(model: Path, given: Mapping[str, Json]) -> dict[str, Json]:
    """Options of `vllm serve` for the CPU; what the user has given stands.

    Args:
        model: its folder.
        given: the user's, with the names that the command line has.
    """
    # A prompt that is prefilled in parts and has a seed of its own ends vLLM there: it takes back the number that was
    # drawn too early in a way that only CUDA's generator knows.
    context = given.get("max-model-len", min(_own_context(model), CONTEXT))
    whole: dict[str, Json] = {"enable-chunked-prefill": False}
    if isinstance(context, int):
        whole["max-num-batched-tokens"] = max(FORWARD, context)
    return {"enforce-eager": True, "max-model-len": context, **whole, **given}


def environment(given: Mapping[str, Json], variables: Mapping[str, str]) -> dict[str, str]:
    """`variables` with a size of the cache, unless they or the options have one.

    Without it vLLM does not start on a machine where anything else runs.
    """
    told = variables.get(SPACE) or any(name in given for name in SIZES)
    return dict(variables) if told else {**variables, SPACE: str(SPACE_GIB)}


def _own_context(model: Path) -> int:
    """Longest prompt plus answer that the checkpoint's configuration names."""
    length = text_part(read_json(model / "config.json")).get("max_position_embeddings")
    return length if isinstance(length, int) and length > 0 else CONTEXT
