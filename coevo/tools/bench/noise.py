"""`coevo bench noise`: making a member's weights, coevo's way against the usual one, on the same threads.

Usual: torch draws fp32 normals from a Generator in chunks, casts them to bfloat16 and adds them into bfloat16
weights in place (and has to subtract them again later). Ours: the kernel that the engines call writes
bfloat16 weights from the fp32 master, so nothing has to be undone. Rounds alternate between the two, because
a busy machine must slow both; the ratio is the median over the rounds' ratios.
"""

from collections.abc import Callable
from statistics import median

import numba
import numpy as np

from coevo.errors import MissingExtraError
from coevo.records import Json
from coevo.tools.bench.rounds import in_turn, seconds, spread
from coevo.weights import kernels
from coevo.weights.noise import step32

TORCH_CHUNK = 1 << 23
SIGMA = 1e-3


def bench_noise(rounds: int = 7, elements: int = 1 << 26, threads: int | None = None) -> dict[str, Json]:
    """Times both ways over `elements` weights.

    Args:
        rounds: Interleaved rounds, after one of each that is not counted (compilation, page faults).
        elements: How many weights; the default needs about 0.6 GB.
        threads: Threads of both sides, at most what numba started with; by default what numba uses now.

    Returns:
        `ratio` (ours over the reference, higher is better), `ratio_min`, `ratio_max`, `ours` and `reference`
        (medians, millions of weights a second), `rounds`, `elements` and `threads`.

    Raises:
        MissingExtraError: If torch is not installed.
        ValueError: If a number is below 1, or there are fewer threads.
    """
    if min(rounds, elements, 1 if threads is None else threads) < 1:
        raise ValueError(f"rounds {rounds}, elements {elements} and threads {threads} must be 1 or more")
    before = numba.get_num_threads()
    used = threads or before
    reference, ours = _reference(elements, used), _ours(elements)
    numba.set_num_threads(used)
    try:
        fast, slow = in_turn(lambda _: seconds(ours), lambda _: seconds(reference), rounds)
    finally:
        numba.set_num_threads(before)
    return {
        **spread(slow, fast),
        "ours": elements / median(fast) / 1e6,
        "reference": elements / median(slow) / 1e6,
        "rounds": rounds,
        "elements": elements,
        "threads": used,
    }


def _ours(elements: int) -> Callable[[], None]:
    master = np.random.default_rng(0).standard_normal(elements, dtype=np.float32) * np.float32(0.02)
    served = np.zeros(elements, dtype=np.uint16)
    return lambda: kernels.serve(master, served, seed=1, name="bench", step=step32(SIGMA, 1.0))


def _reference(elements: int, threads: int) -> Callable[[], None]:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("coevo bench noise", "torch", "transformers") from None

    generator = torch.Generator().manual_seed(1)
    weights = torch.zeros(elements, dtype=torch.bfloat16)
    buffer = torch.empty(min(elements, TORCH_CHUNK))

    def perturb() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            for begin in range(0, elements, TORCH_CHUNK):
                chunk = weights[begin : begin + TORCH_CHUNK]
                drawn = torch.randn(chunk.shape, generator=generator, out=buffer[: chunk.numel()])
                chunk.add_(drawn.to(torch.bfloat16), alpha=SIGMA)
        finally:
            torch.set_num_threads(before)

    return perturb
