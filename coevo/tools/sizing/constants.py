"""The numbers that a plan is made with and does not compute, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

GB = 10**9
MB = 10**6

Kind = Literal["measured", "published", "estimate", "assumed"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A number with its unit and source. Only what is `measured` was ever seen by coevo."""

    value: float
    unit: str
    kind: Kind
    source: str


CONSTANTS: dict[str, Constant] = {
    # Noise and weights.
    "cpu_serve": Constant(5.25e8, "weights/s a core", "measured", "coevo bench noise, bf16, two threads: 1.05e9"),
    "cpu_update": Constant(0.9e9, "weights/s a core", "measured", "the same kernel into fp32, two threads: 1.8e9"),
    "gpu_bandwidth": Constant(0.85 * 3.35e12, "bytes/s", "estimate", "85 % of an H100's 3.35 TB/s"),
    "gpu_normals": Constant(4e11, "normals/s", "estimate", "an H100 computing Philox and a table: 4 to 8e11"),
    "host_link": Constant(5e10, "bytes/s a GPU", "estimate", "80 % of PCIe 5.0 x16"),
    "disk_read": Constant(3e9, "bytes/s", "assumed", "one NVMe drive"),
    "piece": Constant(256 * MB, "bytes", "published", "most that is on the way to a device at once"),
    # Serving.
    "cpu_tokens": Constant(143 * 134_515_008, "tokens x weights/s", "measured",
                           "transformers engine, demo model in bf16, 32 rows, two cores: 143 tokens/s"),
    "runtime": Constant(1.5 * GB, "bytes a device", "assumed", "CUDA context, libraries and captured graphs"),
    "process": Constant(2 * GB, "bytes a worker", "assumed", "a Python process with torch and its engine"),
    "prefill": Constant(8192, "tokens", "assumed", "prompt tokens that vLLM computes in one step"),
    "sequences": Constant(256, "sequences", "assumed", "answers that vLLM decodes together at most"),
    "characters": Constant(4, "characters a token", "assumed", "of the prompts"),
    # On disk, over the runs of configs/studies/learns.toml.
    "rollout_bytes": Constant(1.5, "bytes a token", "measured", "study learns: 0.8 to 1.5"),
    "journal_line": Constant(2_000, "bytes a batch", "measured", "study learns: 3.5 to 5.3 kB with what follows"),
    "journal_term": Constant(45, "bytes a member", "measured", "a seed of 16 hex digits and a coefficient"),
    "journal_objective": Constant(12, "bytes an answer", "measured", "study learns"),
}  # fmt: skip


def value(name: str) -> float:
    """The number of a constant."""
    return CONSTANTS[name].value
