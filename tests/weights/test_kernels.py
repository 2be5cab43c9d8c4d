import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.weights import _compiled, kernels, noise

STEP = np.float32(1e-3)


def test_the_machine_code_holds_no_fused_multiply_add():
    # Compiled anew: code from numba's cache cannot be disassembled.
    half, zeros, table = np.zeros(2, dtype=np.uint32), np.zeros(64, np.float32), noise.table()
    serve = numba.njit(parallel=True)(_compiled.serve_float32.py_func)
    serve(zeros, zeros.copy(), table, np.uint64(0), 0, half, half, STEP)
    perturb_at = numba.njit(_compiled.perturb_at.py_func)
    perturb_at(zeros, np.arange(64), zeros.copy(), table, half, half, STEP)
    for compiled in (serve, perturb_at):
        code = "\n".join(compiled.inspect_asm().values())
        assert re.search(r"\bv?f?mul[sp]?s?\b", code)
        assert not re.findall(r"\bv?fn?m(?:add|sub|la|ls)\w*", code)


def test_kernels_import_without_torch_and_triton():
    program = (
        "import sys; from coevo.weights import kernels, master, torch_noise, triton_noise; "
        "import coevo.tools.bench.noise; print({'torch', 'triton'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_machine_without_a_place_for_the_cache_compiles_in_the_process(monkeypatch: pytest.MonkeyPatch):
    real: Callable[..., Any] = numba.njit

    def njit(*, cache: bool, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available for file")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    assert _compiled._jit()(lambda x: x + 1)(2) == 3


def test_threads_may_serve_at_the_same_time():
    master = noise.noise(8, "weights", 0, 50_000)

    def serve(seed: int) -> bytes:
        out = np.empty(master.shape, dtype=np.uint16)
        kernels.serve(master, out, seed=seed, name="w", step=STEP)
        return out.tobytes()

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(serve, range(16)))
    assert together == [serve(seed) for seed in range(16)]


def test_a_zero_step_counts_as_a_copy_and_keeps_negative_zero():
    master = np.array([-0.0, 0.0, -1e-42], dtype=np.float32)
    out = np.empty_like(master)
    kernels.serve(master, out, seed=1, name="w", step=np.float32(0))
    assert out.tobytes() == master.tobytes()


def test_an_update_of_zero_steps_touches_nothing():
    master = np.full(9, -0.0, dtype=np.float32)
    assert kernels.update(master, name="w", terms=[(1, np.float32(0)), (2, np.float32(-0.0))]) == 0
    assert master.tobytes() == np.full(9, -0.0, dtype=np.float32).tobytes()


def test_an_update_says_how_many_weights_became_nan():
    master = np.array([np.inf, -np.inf] * 8, dtype=np.float32)
    with np.errstate(over="ignore"):
        expected = noise.update_reference(master, [(1, 3e38)], "w", 1.0)
    assert np.isnan(expected).any()
    assert kernels.update(master, name="w", terms=[(1, np.float32(3e38))]) == np.isnan(expected).sum()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("sigma", [3e-5, -0.5, 0.0])
def test_single_elements_are_served_as_the_whole_is(dtype: Any, sigma: float):
    master = noise.noise(8, "weights", 0, 5000) * np.float32(0.02)
    master[10] = -0.0
    positions = np.arange(3, 5000, 7)
    served = noise.served_reference(master, 11, "w", sigma, 1.0, dtype)
    exact = kernels.perturb_at(master, positions, seed=11, name="w", step=np.float32(sigma))
    found = noise.cast(exact, dtype)
    assert found.tobytes() == served[positions].tobytes()


def added(weights: np.ndarray, name: str, terms: Any, together: bool, start: int, dtype: Any) -> np.ndarray:
    """The definition of `kernels.add`, from the noise and torch's own rounding."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    held = torch.tensor(weights.view(np.int16)).view(torch.bfloat16) if dtype == "bfloat16" else torch.tensor(weights)
    drawn = [step * noise.noise(seed, name, start, start + weights.size) for seed, step in terms if step != 0]
    if together:
        total = np.zeros(weights.size, np.float32)
        for term in drawn:
            total = total + term
        drawn = [total] * bool(drawn)
    for term in drawn:
        held = (held.float() + torch.tensor(term).to(kind).float()).to(kind)
    return held.view(torch.int16).numpy().view(np.uint16) if dtype == "bfloat16" else held.numpy()


@settings(max_examples=40, deadline=None)
@given(
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    size=st.integers(0, 2 * _compiled.BLOCK + 9),
    start=st.integers(0, 40),
    steps=st.lists(st.sampled_from([1e-3, -2e-4, 0.3, 1e-6, 0.0]), max_size=4),
    together=st.booleans(),
)
def test_adding_in_place_rounds_as_it_says(dtype: Any, size: int, start: int, steps: list[float], together: bool):
    weights: Any = noise.cast(noise.noise(3, "weights", 0, size) * np.float32(0.02), dtype)
    weights[: min(size, 3)] = 0
    terms = [(seed, np.float32(step)) for seed, step in enumerate(steps)]
    expected = added(weights, "w", terms, together, start, dtype)
    kernels.add(weights, name="w", terms=terms, together=together, start=start)
    assert weights.tobytes() == expected.tobytes()


def test_adding_in_place_knows_subnormals_and_infinity_of_float16():
    weights = np.array([6e-8, -1e-7, 6e-5, 65504, -np.inf, -0.0] * 20, dtype=np.float16)
    terms = [(5, np.float32(1e-6)), (6, np.float32(40.0))]
    expected = added(weights, "w", terms, False, 0, "float16")
    kernels.add(weights, name="w", terms=terms)
    assert weights.tobytes() == expected.tobytes()


def test_noise_of_other_weights_is_not_added():
    with pytest.raises(TypeError, match="not float64"):
        kernels.add(np.zeros(3), name="w", terms=[(1, STEP)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not C-contiguous"):
        kernels.add(np.zeros(6, np.uint16)[::2], name="w", terms=[(1, STEP)])


@pytest.mark.parametrize(
    ("master", "out", "error", "match"),
    [
        (np.zeros(4), np.zeros(4, np.uint16), TypeError, "the master is float64"),
        (np.zeros(4, np.float32), np.zeros(4, np.int16), TypeError, "not int16"),
        (np.zeros(4, np.float32), np.zeros(5, np.uint16), ValueError, r"out holds 5 elements, shape \(5,\); master 4"),
        (np.zeros(4, np.float32), np.zeros(8, np.uint16)[::2], ValueError, "not C-contiguous"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(master: Any, out: Any, error: type[Exception], match: str):
    with pytest.raises(error, match=match):
        kernels.serve(master, out, seed=1, name="w", step=STEP)


def test_a_start_before_the_tensor_is_refused():
    with pytest.raises(ValueError, match="start is -1"):
        kernels.serve(np.zeros(4, np.float32), np.zeros(4, np.uint16), seed=1, name="w", step=STEP, start=-1)
