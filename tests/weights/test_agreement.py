"""numpy, numba and torch give the same bits; each case runs for every implementation.

`numpy` is the definition, so it is compared with the golden file only.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.weights import kernels, noise, torch_noise
from coevo.weights._compiled import BLOCK
from coevo.weights.dtypes import DType, held_as

torch = pytest.importorskip("torch")

DTYPES: list[DType] = ["float32", "bfloat16", "float16"]
Steps = Sequence[tuple[int, np.float32]]


@dataclass(frozen=True)
class Implementation:
    serve: Callable[..., np.ndarray]
    update: Callable[[np.ndarray, str, Steps, int], np.ndarray]


def serve_numba(master: np.ndarray, seed: int, name: str, step: np.float32, dtype: DType, start: int) -> np.ndarray:
    out = np.empty(master.shape, dtype=held_as(dtype))
    kernels.serve(master, out, seed=seed, name=name, step=step, start=start)
    return out


def update_numba(master: np.ndarray, name: str, terms: Steps, start: int) -> np.ndarray:
    moved = master.copy()
    kernels.update(moved, name=name, terms=terms, start=start)
    return moved


def serve_torch(master: np.ndarray, seed: int, name: str, step: np.float32, dtype: DType, start: int) -> np.ndarray:
    out = torch.empty(master.shape, dtype=getattr(torch, dtype))
    torch_noise.serve(torch.tensor(master), out, seed=seed, name=name, step=step, start=start)
    return (out.view(torch.uint16) if dtype == "bfloat16" else out).numpy()


def update_torch(master: np.ndarray, name: str, terms: Steps, start: int) -> np.ndarray:
    moved = torch.tensor(master)
    torch_noise.update(moved, name=name, terms=terms, start=start)
    return moved.numpy()


IMPLEMENTATIONS = {
    "numba": Implementation(serve_numba, update_numba),
    "torch": Implementation(serve_torch, update_torch),
}
both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
every = pytest.mark.parametrize("dtype", DTYPES)

seeds = st.integers(0, 2**64 - 1)
starts = st.one_of(st.integers(0, 20), st.integers(2**35 - 9, 2**35 + 9))
names = st.text(max_size=6)
sigmas = st.one_of(
    st.floats(-1, 1), st.floats(-1e-37, 1e-37), st.sampled_from([1e-3, -1e-3, 0.0, -0.0, 1e4, 7e37, -7e37])
)
scales = st.one_of(st.just(1.0), st.floats(0, 4))
shapes = st.lists(st.integers(0, 7), max_size=3).map(tuple)
# Any bits but NaN: what a NaN's bits become in fp32 arithmetic is the processor's choice.
weights = st.integers(0, 2**32 - 1).filter(lambda bits: bits & 0x7FFFFFFF <= 0x7F800000)


def array_of(bits: list[int], shape: tuple[int, ...]) -> np.ndarray:
    """Repeats the given fp32 bits over a shape."""
    return np.resize(np.array(bits, dtype=np.uint32), shape).view(np.float32).reshape(shape)


def bits_of(text: str, dtype: DType) -> bytes:
    return np.array([int(word, 16) for word in text.split()], dtype=f"<u{held_as(dtype).itemsize}").tobytes()


def golden_master(golden: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(bits_of(golden["master"], "float32"), dtype=np.float32)


@every
def test_the_definition_serves_the_golden_bits(golden: dict[str, Any], dtype: DType):
    for case in golden["serve"]:
        served = noise.served_reference(
            golden_master(golden),
            int(case["seed"], 16),
            case["name"],
            case["sigma"],
            case["scale"],
            dtype,
            start=case["start"],
        )
        assert served.tobytes() == bits_of(case[dtype], dtype)


@every
@both
def test_an_implementation_serves_the_golden_bits(golden: dict[str, Any], implementation: Implementation, dtype: DType):
    for case in golden["serve"]:
        step = noise.step32(case["sigma"], case["scale"])
        seed, name, start = int(case["seed"], 16), case["name"], case["start"]
        served = implementation.serve(golden_master(golden), seed, name, step, dtype, start)
        assert served.tobytes() == bits_of(case[dtype], dtype)


def test_the_definition_updates_to_the_golden_bits(golden: dict[str, Any]):
    for case in golden["update"]:
        terms = [(int(seed, 16), coefficient) for seed, coefficient in case["terms"]]
        moved = noise.update_reference(golden_master(golden), terms, case["name"], case["scale"], start=case["start"])
        assert moved.tobytes() == bits_of(case["float32"], "float32")


@both
def test_an_implementation_updates_to_the_golden_bits(golden: dict[str, Any], implementation: Implementation):
    for case in golden["update"]:
        terms = noise.merge_terms((int(seed, 16), coefficient) for seed, coefficient in case["terms"])
        steps = [(seed, noise.step32(coefficient, case["scale"])) for seed, coefficient in terms]
        moved = implementation.update(golden_master(golden), case["name"], steps, case["start"])
        assert moved.tobytes() == bits_of(case["float32"], "float32")


@every
@both
@settings(deadline=None, max_examples=60)
@given(st.lists(weights, min_size=1, max_size=9), shapes, seeds, names, sigmas, scales, starts)
def test_any_tensor_is_served_as_defined(
    implementation: Implementation,
    dtype: DType,
    bits: list[int],
    shape: tuple[int, ...],
    seed: int,
    name: str,
    sigma: float,
    scale: float,
    start: int,
):
    master, step = array_of(bits, shape), noise.step32(sigma, scale)
    served = implementation.serve(master, seed, name, step, dtype, start)
    defined = noise.served_reference(master, seed, name, sigma, scale, dtype, start=start)
    assert served.shape == shape
    assert served.tobytes() == defined.tobytes()


@both
@settings(deadline=None, max_examples=60)
@given(
    st.lists(weights.filter(lambda bits: bits & 0x7F800000 < 0x7E800000), min_size=1, max_size=9),
    shapes,
    names,
    st.lists(st.tuples(seeds, sigmas), max_size=6),
    scales,
    starts,
)
def test_any_update_is_as_defined(
    implementation: Implementation,
    bits: list[int],
    shape: tuple[int, ...],
    name: str,
    terms: list[tuple[int, float]],
    scale: float,
    start: int,
):
    terms = [(seed, coefficient / 8) for seed, coefficient in terms]  # Σ stays below the largest fp32: no NaN
    master = array_of(bits, shape)
    steps = [(seed, noise.step32(coefficient, scale)) for seed, coefficient in noise.merge_terms(terms)]
    moved = implementation.update(master, name, steps, start)
    assert moved.tobytes() == noise.update_reference(master, terms, name, scale, start=start).tobytes()


@every
@both
@pytest.mark.parametrize("size", [BLOCK, BLOCK + 1, 5 * BLOCK - 5])
def test_tensors_longer_than_a_block_are_served_as_defined(implementation: Implementation, dtype: DType, size: int):
    # A fused multiply-add would differ in about one element of seventeen.
    master = noise.noise(8, "weights", 0, size) * np.float32(0.02)
    served = implementation.serve(master, 2**63 + 5, "long", noise.step32(1e-3, 1.0), dtype, 13)
    defined = noise.served_reference(master, 2**63 + 5, "long", 1e-3, 1.0, dtype, start=13)
    assert served.tobytes() == defined.tobytes()


@both
def test_long_tensors_are_updated_as_defined(implementation: Implementation):
    master = noise.noise(8, "weights", 0, 5 * BLOCK - 5) * np.float32(0.02)
    terms = [(seed, 1e-3 / (seed + 1)) for seed in range(5)]
    moved = implementation.update(master, "long", [(s, noise.step32(c, 1.0)) for s, c in terms], 13)
    assert moved.tobytes() == noise.update_reference(master, terms, "long", 1.0, start=13).tobytes()


@pytest.mark.parametrize("start", [0, 3, 64, 2**35 - 70])
def test_the_chunks_of_torch_join_without_a_seam(monkeypatch: pytest.MonkeyPatch, start: int):
    monkeypatch.setattr(torch_noise, "CHUNK", 64)
    master = noise.noise(8, "weights", 0, 300)
    served = serve_torch(master, 1, "w", np.float32(1e-3), "bfloat16", start)
    moved = update_torch(master, "w", [(1, np.float32(0.5)), (2, np.float32(-2))], start)
    assert served.tobytes() == noise.served_reference(master, 1, "w", 1e-3, 1.0, "bfloat16", start=start).tobytes()
    assert moved.tobytes() == noise.update_reference(master, [(1, 0.5), (2, -2.0)], "w", 1.0, start=start).tobytes()


@pytest.mark.parametrize("low", [0x000, 0x001, 0x7FF, 0x800, 0x801, 0xFFF])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@both
def test_the_cast_is_exact_over_the_whole_range(implementation: Implementation, dtype: DType, low: int):
    master = (np.arange(1 << 20, dtype=np.uint32) << np.uint32(12) | np.uint32(low)).view(np.float32)
    served = implementation.serve(master, 0, "", np.float32(0), dtype, 0)
    assert served.tobytes() == noise.cast(master, dtype).tobytes()


def test_the_number_of_threads_changes_no_bit():
    master = noise.noise(8, "weights", 0, 100_000)
    results: list[bytes] = []
    before = numba.get_num_threads()
    for threads in range(1, before + 1):
        numba.set_num_threads(threads)
        results.append(serve_numba(master, 1, "w", np.float32(1e-3), "bfloat16", 3).tobytes())
    numba.set_num_threads(before)
    assert len(set(results)) == 1


@both
def test_noise_of_the_antithetic_twin_is_the_mirror_image(implementation: Implementation):
    zeros = np.zeros(1000, dtype=np.float32)
    plus = implementation.serve(zeros, 4, "w", np.float32(1e-3), "bfloat16", 0)
    minus = implementation.serve(zeros, 4, "w", np.float32(-1e-3), "bfloat16", 0)
    assert (plus ^ np.uint16(0x8000) == minus).all()
