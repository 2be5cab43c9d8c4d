"""The definition in numpy, against Random123, exact rational arithmetic and its own laws."""

import hashlib
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo.errors import CheckFailedError
from coevo.weights import noise

SCRIPT = Path(__file__).parents[1] / "golden" / "make_noise.py"
seeds = st.integers(0, 2**64 - 1)
starts = st.one_of(st.integers(0, 40), st.integers(2**32 - 20, 2**32 + 20), st.integers(2**35 - 20, 2**35 + 20))


def hexes(text: str) -> np.ndarray:
    return np.array([int(word, 16) for word in text.split()], dtype=np.uint32)


def test_philox_gives_the_known_answers_of_random123(golden: dict[str, Any]):
    for case in golden["philox4x32_10"]:
        counter, (k0, k1) = hexes(case["counter"]).reshape(4, 1), hexes(case["key"])
        words = noise.philox4x32(counter, (int(k0), int(k1)))
        assert (words[:, 0] == hexes(case["words"])).all()


def test_the_golden_file_is_what_its_script_writes():
    written = runpy.run_path(str(SCRIPT))["main"]()
    assert written == SCRIPT.with_name("noise.json").read_text()


def test_the_shipped_table_is_the_one_that_the_recipe_gives():
    assert noise.build_table().tobytes() == noise.table().tobytes()


def test_the_table_has_the_digest_in_the_code():
    assert hashlib.sha256(noise.table().tobytes()).hexdigest() == noise.TABLE_SHA256


def test_the_table_is_antisymmetric_increasing_and_of_unit_variance():
    table = noise.table()
    assert table.shape == (65536,)
    assert (table == -table[::-1]).all()
    assert (np.diff(table) > 0).all()
    assert abs(np.mean(np.square(table.astype(np.float64))) - 1) < 1e-8


def test_the_table_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        noise.table()[0] = 0


def test_a_damaged_table_is_refused(monkeypatch: pytest.MonkeyPatch):
    noise.table.cache_clear()
    monkeypatch.setattr(noise, "TABLE_SHA256", "0" * 64)
    with pytest.raises(CheckFailedError, match=r"normal-v1\.f32' is damaged"):
        noise.table()


def test_noise_reads_the_words_in_the_order_of_the_contract(golden: dict[str, Any]):
    case = golden["indices"]
    values = noise.noise(int(case["seed"], 16), case["name"], case["start"], case["start"] + 24)
    assert values.tobytes() == noise.table()[case["table_indices"]].tobytes()


@given(seeds, starts, st.integers(0, 60), st.integers(0, 60))
def test_a_tensor_split_in_two_gets_the_same_noise(seed: int, start: int, first: int, second: int):
    middle, stop = start + first, start + first + second
    parts = [noise.noise(seed, "w", start, middle), noise.noise(seed, "w", middle, stop)]
    assert np.concatenate(parts).tobytes() == noise.noise(seed, "w", start, stop).tobytes()


@given(seeds, seeds)
def test_different_seeds_give_different_noise(one: int, other: int):
    # Two of 2^64 seeds agree on 32 table indices with probability 2^-512.
    same = noise.noise(one, "w", 0, 32).tobytes() == noise.noise(other, "w", 0, 32).tobytes()
    assert same == (one == other)


@given(st.text(max_size=8), st.text(max_size=8))
def test_different_names_give_different_noise(one: str, other: str):
    same = noise.noise(3, one, 0, 32).tobytes() == noise.noise(3, other, 0, 32).tobytes()
    assert same == (one == other)


def test_noise_looks_standard_normal():
    # Fixed seed: no chance of a false alarm. The bounds are four standard errors of a sample of a million.
    values = noise.noise(1, "w", 0, 1_000_000).astype(np.float64)
    assert abs(values.mean()) < 4e-3
    assert abs(values.var() - 1) < 4 * 2**0.5 * 1e-3
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 4e-3


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (4, 3)])
def test_a_range_that_is_none_is_refused(start: int, stop: int):
    with pytest.raises(ValueError, match="0 <= start <= stop"):
        noise.noise(1, "w", start, stop)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_of_more_than_64_bits_is_refused(seed: int):
    with pytest.raises(ValueError, match="unsigned 64-bit"):
        noise.noise(seed, "w", 0, 1)


@given(st.integers(0, 0xFFFF))
def test_every_bfloat16_survives_the_way_to_float32_and_back(pattern: int):
    patterns = np.array([pattern], dtype=np.uint16)
    back = noise.to_bfloat16(noise.from_bfloat16(patterns))
    is_nan = pattern & 0x7FFF > 0x7F80
    assert back[0] == (0x7FC0 if is_nan else pattern)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_nan_becomes_one_quiet_nan(dtype: Any):
    nans = np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], dtype=np.uint32).view(np.float32)
    patterns = noise.cast(nans, dtype).view(np.uint16)
    assert set(patterns.tolist()) == {0x7FC0 if dtype == "bfloat16" else 0x7E00}


def test_terms_of_one_seed_are_merged_in_order_of_first_appearance():
    terms = [(5, 0.1), (3, 1.0), (5, 0.2), (9, -1.0), (3, -1.0), (5, 0.3)]
    assert noise.merge_terms(terms) == ((5, 0.1 + 0.2 + 0.3), (9, -1.0))


@pytest.mark.parametrize("number", [1e39, -1e39, float("inf"), float("nan")])
def test_a_step_that_is_not_a_finite_float32_is_refused(number: float):
    with pytest.raises(ValueError, match="not a finite float32"):
        noise.step32(number, 1.0)
