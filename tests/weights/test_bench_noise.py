import sys

import numba
import pytest

from coevo.errors import MissingExtraError
from coevo.tools.bench.noise import bench_noise


def test_the_bench_reports_both_sides_and_their_ratio():
    pytest.importorskip("torch")
    before = numba.get_num_threads()
    result = bench_noise(rounds=3, elements=1 << 16, threads=1)
    assert result["ratio_min"] <= result["ratio"] <= result["ratio_max"]
    assert min(result["ours"], result["reference"]) > 0
    assert (result["rounds"], result["elements"], result["threads"]) == (3, 1 << 16, 1)
    assert numba.get_num_threads() == before


def test_the_bench_without_torch_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="coevo bench noise needs the package 'torch'"):
        bench_noise(rounds=1, elements=8)


def test_a_bench_of_nothing_is_refused():
    with pytest.raises(ValueError, match="must be 1 or more"):
        bench_noise(rounds=0)
