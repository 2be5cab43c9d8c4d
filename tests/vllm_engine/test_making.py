"""A member's tensor made on the host and made on the device: the bits of the definition, in pieces of any size."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from coevo.weights import noise  # noqa: E402
from coevo.weights.master import Master  # noqa: E402
from coevo.weights.selection import select  # noqa: E402
from coevo.weights.torch_memory import as_numpy  # noqa: E402
from coevo_vllm.making import DeviceMaker, HostMaker, choose  # noqa: E402
from tests.tiny_llama import save_tiny_llama  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    folder = save_tiny_llama(tmp_path_factory.mktemp("models") / "tiny")
    return Master(select(folder), folder)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("seed", [None, 7])
def test_both_ways_give_the_definition(master, dtype, seed):
    for spec in master.selection.tensors[:4]:
        values = master.view(spec.name)
        expected = (
            noise.cast(values, dtype)
            if seed is None
            else noise.served_reference(values, seed, spec.name, -1e-2, spec.scale, dtype)
        )
        for maker in (HostMaker(master, CPU), DeviceMaker(master, CPU, piece=1000)):
            made = as_numpy(maker.make(spec, dtype, seed, -1e-2))
            assert np.array_equal(made.view(f"u{made.itemsize}"), expected.view(f"u{expected.itemsize}"))


def test_the_cpu_makes_members_where_they_are_served(master):
    maker, measured = choose("auto", master, CPU, "bfloat16")
    assert (maker.route, measured) == ("host", {})


def test_the_way_that_is_asked_for_is_taken(master):
    assert choose("device", master, CPU, "bfloat16")[0].route == "device"


@pytest.mark.gpu
def test_on_cuda_the_faster_way_is_measured_and_both_are_the_definition(master):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    device = torch.device("cuda")
    maker, measured = choose("auto", master, device, "bfloat16")
    assert measured.keys() == {"host", "device"}
    assert maker.route == min(measured, key=measured.get)
    spec = max(master.selection.tensors, key=lambda each: each.size)
    expected = noise.served_reference(master.view(spec.name), 7, spec.name, 1e-2, spec.scale, "bfloat16")
    for each in (HostMaker(master, device), DeviceMaker(master, device, piece=1000)):
        made = each.make(spec, "bfloat16", 7, 1e-2)
        each.wait()
        assert np.array_equal(as_numpy(made.cpu()), expected)
