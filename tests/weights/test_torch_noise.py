import sys

import numpy as np
import pytest

from coevo.errors import MissingExtraError
from coevo.weights import noise, torch_noise

torch = pytest.importorskip("torch")

STEP = np.float32(1e-3)


def test_torch_makes_the_same_noise():
    made = torch_noise.noise(2**63 + 1, "w", 2**35 - 3, 2**35 + 100)
    assert made.numpy().tobytes() == noise.noise(2**63 + 1, "w", 2**35 - 3, 2**35 + 100).tobytes()


def test_torch_missing_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    torch_noise.device_table.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'coevo\[transformers\]'"):
        torch_noise.noise(1, "w", 0, 1)


def test_a_parameter_that_wants_gradients_can_be_served_into():
    out = torch.nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    torch_noise.serve(torch.ones(3), out, seed=1, name="w", step=STEP)
    assert (out != 0).all()


@pytest.mark.parametrize(
    ("master", "out", "error", "match"),
    [
        (torch.zeros(4, dtype=torch.float64), torch.zeros(4), TypeError, r"master is torch\.float64"),
        (torch.zeros(4), torch.zeros(4, dtype=torch.int16), TypeError, r"out is torch\.int16"),
        (torch.zeros(4), torch.zeros(5), ValueError, "out holds 5 elements"),
        (torch.zeros(4), torch.zeros(8)[::2], ValueError, "not contiguous"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(master: object, out: object, error: type[Exception], match: str):
    with pytest.raises(error, match=match):
        torch_noise.serve(master, out, seed=1, name="w", step=STEP)


def test_a_range_that_is_none_is_refused():
    with pytest.raises(ValueError, match="0 <= start <= stop"):
        torch_noise.noise(1, "w", 4, 3)


@pytest.mark.gpu
def test_a_cuda_device_gives_the_same_bits():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    master = noise.noise(8, "weights", 0, 100_000)
    out = torch.empty(100_000, dtype=torch.bfloat16, device="cuda")
    torch_noise.serve(torch.tensor(master, device="cuda"), out, seed=5, name="w", step=STEP, start=3)
    defined = noise.served_reference(master, 5, "w", 1e-3, 1.0, "bfloat16", start=3)
    assert out.cpu().view(torch.uint16).numpy().tobytes() == defined.tobytes()
