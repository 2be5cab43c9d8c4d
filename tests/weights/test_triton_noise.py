"""The Triton kernels: compiled for an H100 without one, run on numpy by Triton's interpreter, and on a GPU."""

import importlib.util
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import coevo.weights
from coevo.errors import MissingExtraError
from coevo.weights import noise, triton_noise

TRITON = importlib.util.find_spec("triton") is not None
TORCH = importlib.util.find_spec("torch") is not None
needs_triton = pytest.mark.skipif(not TRITON, reason="triton is not installed")

# In a process of its own: triton decides at import whether it interprets.
INTERPRETED = """
import numpy as np, torch
from coevo.weights import noise, triton_noise
for size, start, seed in [(2600, 0, 1), (5, 3, 1 << 32), (1100, 2**35 + 5, 2**64 - 5)]:
    master = noise.noise(8, "weights", 0, size) * np.float32(0.02)
    master[:5] = [-0.0, 1e-40, 65519, 3e38, -1e-7]
    for sigma in (1e-3, -0.5, 0.0):
        for dtype in ("float32", "bfloat16", "float16"):
            out = torch.empty(size, dtype=getattr(torch, dtype))
            step = noise.step32(sigma, 1.5)
            triton_noise.serve(torch.tensor(master), out, seed=seed, name="w", step=step, start=start)
            bits = out.view(torch.int32 if dtype == "float32" else torch.int16).numpy().tobytes()
            assert bits == noise.served_reference(master, seed, "w", sigma, 1.5, dtype, start=start).tobytes()
    terms = [(i * 7919 + 1, 1e-4 * (i - 5)) for i in range(5)]
    moved = torch.tensor(master)
    steps = [(seed, noise.step32(c, 1.0)) for seed, c in terms]
    assert triton_noise.update(moved, name="w", terms=steps, start=start) == 0
    assert moved.numpy().tobytes() == noise.update_reference(master, terms, "w", 1.0, start=start).tobytes()
print("same bits")
"""


@needs_triton
@pytest.mark.filterwarnings("default")  # triton's own
def test_the_ptx_for_an_h100_multiplies_and_adds_in_two_steps():
    ptx = triton_noise.compile_ptx()
    assert not re.findall(r"\bfma\.\S*|\bmad\.\S*f32\S*|\.ftz\S*", ptx)
    # `.rn` is also what forbids ptxas to fuse them.
    assert set(re.findall(r"\b(?:mul|add)\.\S*f32", ptx)) == {"mul.rn.f32", "add.rn.f32"}
    assert ptx.count(".visible .entry") == 4


@needs_triton
@pytest.mark.skipif(not TORCH, reason="torch is not installed")
def test_interpreted_kernels_give_the_same_bits():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "same bits", done.stderr


def test_triton_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "coevo.weights._triton_kernels", raising=False)
    monkeypatch.delattr(coevo.weights, "_triton_kernels", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(MissingExtraError, match="'triton', which is not installed"):
        triton_noise.compile_ptx()


@pytest.mark.gpu
@needs_triton
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("start", [0, 13])
def test_a_cuda_device_gives_the_same_bits(dtype: noise.DType, start: int):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    master = noise.noise(8, "weights", 0, 1_000_003) * np.float32(0.02)
    held = torch.tensor(master, device="cuda")
    out = torch.empty(held.shape, dtype=getattr(torch, dtype), device="cuda")
    triton_noise.serve(held, out, seed=2**63 + 1, name="w", step=np.float32(1e-3), start=start)
    defined = noise.served_reference(master, 2**63 + 1, "w", 1e-3, 1.0, dtype, start=start)
    assert out.cpu().view(torch.uint8).numpy().tobytes() == defined.tobytes()
    terms = [(seed, 1e-3 / (seed + 1)) for seed in range(9)]
    assert triton_noise.update(held, name="w", terms=[(s, noise.step32(c, 1.0)) for s, c in terms], start=start) == 0
    assert held.cpu().numpy().tobytes() == noise.update_reference(master, terms, "w", 1.0, start=start).tobytes()
