"""How much of an update arrived: the cosine and the drift, on the fixed sample of weights."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevo.weights import noise
from coevo.weights.dtypes import DType
from coevo.weights.master import Master
from coevo.weights.reach import Look, Reach, cosine, drift
from coevo.weights.sample import SAMPLE, gather, sample_of
from coevo.weights.selection import TensorSpec, select, with_scales

Write = Callable[..., Path]
TERMS = [(1, 5e-4), (2, -2.5e-4)]
FLOATS = st.floats(-1e3, 1e3, width=32)
PAIRS = st.lists(st.tuples(FLOATS, FLOATS, FLOATS, FLOATS), min_size=1, max_size=30)


@pytest.fixture
def folder(write_checkpoint: Write) -> Path:
    values = noise.noise(1, "init", 0, 3000) * np.float32(0.05)
    return write_checkpoint({"a": values.reshape(30, 100), "b": np.ones(40, np.float32), "c": np.zeros(3, np.float32)})


def looks(rows: Any) -> tuple[Look, Look]:
    columns = np.array(rows, dtype=np.float32).T
    return Look(columns[0], columns[1]), Look(columns[2], columns[3])


def exactly(rows: Any) -> float:
    """The cosine with sums that round once."""
    meant = [float(row[2]) - float(row[0]) for row in rows]
    served = [float(row[3]) - float(row[1]) for row in rows]
    sizes = math.fsum(m * m for m in meant), math.fsum(s * s for s in served)
    if 0.0 in sizes:
        return float(sizes == (0.0, 0.0))
    return math.fsum(m * s for m, s in zip(meant, served, strict=True)) / math.sqrt(sizes[0]) / math.sqrt(sizes[1])


@given(PAIRS)
def test_the_cosine_is_the_textbook_s(rows: Any):
    found = cosine(*looks(rows))
    assert -1 <= found <= 1
    if all(abs(a - b) == 0 or abs(a - b) > 1e-9 for row in rows for a, b in (row[::2], row[1::2])):
        assert found == pytest.approx(exactly(rows), abs=1e-9)


@given(PAIRS, st.sampled_from([0.25, 4.0, 1024.0]))
def test_the_length_of_a_change_does_not_matter(rows: Any, factor: float):
    before, after = looks(rows)
    longer = Look(after.meant, before.served + (after.served - before.served) * np.float32(factor))
    exact = np.array_equal(longer.served - before.served, (after.served - before.served) * np.float32(factor))
    if exact and np.abs(after.served - before.served).max() > 1e-9:
        assert cosine(before, longer) == pytest.approx(cosine(before, after), abs=1e-5)


@given(PAIRS)
def test_equal_changes_have_cosine_one_and_opposite_ones_minus_one(rows: Any):
    before, after = looks(rows)
    same = Look(before.meant, before.meant), Look(after.meant, after.meant)
    assert cosine(*same) == 1.0
    if np.abs(after.meant.astype(np.float64) - before.meant).max() > 1e-9:
        assert cosine(Look(before.meant, after.meant), Look(after.meant, before.meant)) == -1.0


def test_what_does_not_arrive_at_all_has_cosine_zero():
    zeros, ones = np.zeros(4, np.float32), np.ones(4, np.float32)
    assert cosine(Look(zeros, zeros), Look(ones, zeros)) == 0.0
    assert cosine(Look(zeros, zeros), Look(zeros, zeros)) == 1.0
    assert cosine(Look(zeros[:0], zeros[:0]), Look(zeros[:0], zeros[:0])) == 1.0


def test_infinite_weights_are_left_out():
    before = np.array([0, np.inf, 1], np.float32)
    after = np.array([1, np.inf, 3], np.float32)
    assert cosine(Look(before, before), Look(after, after)) == 1.0
    found = drift(np.array([1, np.inf], np.float32), np.array([4, 1], np.float32))
    assert found == {"drift": 3.0, "drifted": 1.0}


@given(st.lists(st.tuples(FLOATS, FLOATS), max_size=30))
def test_drift_is_the_rms_of_the_difference(pairs: Any):
    served, expected = np.array(pairs, np.float32).reshape(-1, 2).T
    found = drift(served, expected)
    differences = served.astype(np.float64) - expected
    assert found["drift"] == pytest.approx(np.linalg.norm(differences) / max(1, len(pairs)) ** 0.5)
    assert found["drifted"] == sum(a != b for a, b in zip(served, expected, strict=True)) / max(1, len(pairs))


def reach_of(master: Master, dtype: DType = "bfloat16", **changed: Any) -> Reach:
    def read(spec: TensorSpec, positions: Any) -> Any:
        return changed.get(spec.name, noise.cast(master.view(spec.name), dtype)).reshape(-1)[positions]

    return Reach(master, lambda _: dtype, read)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_an_engine_is_told_of_the_update_and_of_the_run(folder: Path, dtype: DType):
    master = Master(select(folder), folder)
    reach = reach_of(master, dtype)
    assert reach.told() == {}
    moments = [{spec.name: master.view(spec.name).copy() for spec in master.selection.tensors}]
    for terms in (TERMS, [(3, 1e-4)]):
        with reach.update():
            master.apply(terms)
        moments.append({spec.name: master.view(spec.name).copy() for spec in master.selection.tensors})

    def expected(before: Any, after: Any) -> float:
        flat = [np.concatenate([one[name].reshape(-1) for name in "abc"]) for one in (before, after)]
        served = [np.asarray(torch_cast(values, dtype)) for values in flat]
        return exactly(list(zip(flat[0], served[0], flat[1], served[1], strict=True)))

    assert reach.told()["cosine"] == pytest.approx(expected(moments[1], moments[2]), abs=1e-9)
    assert reach.told()["cosine_run"] == pytest.approx(expected(moments[0], moments[2]), abs=1e-9)
    assert (reach.told()["drift"], reach.told()["drifted"]) == (0.0, 0.0)
    assert {type(value) for value in reach.told().values()} == {float}
    if dtype == "float32":
        assert reach.told()["cosine"] == reach.told()["cosine_run"] == 1.0
    else:
        assert 0 < reach.told()["cosine"] < 1


def torch_cast(values: np.ndarray, dtype: DType) -> np.ndarray:
    torch = pytest.importorskip("torch")
    return torch.tensor(values).to(getattr(torch, dtype)).float().numpy()


def test_an_update_that_fails_is_not_told_of(folder: Path):
    master = Master(select(folder), folder)
    reach = reach_of(master)

    def fail() -> None:
        with reach.update():
            master.apply([(1, float("nan"))])

    with pytest.raises(ValueError, match="finite"):
        fail()
    assert reach.told() == {}


def test_the_run_survives_an_anchor_to_the_bit(folder: Path, tmp_path: Path):
    """A resumed run tells the same cosine of the run as one that was never interrupted."""
    unbroken = Master(select(folder), folder)
    reach = reach_of(unbroken)
    with reach.update():
        unbroken.apply(TERMS)
    digest = unbroken.save_anchor(tmp_path / "anchor")
    with reach.update():
        unbroken.apply([(9, 1e-4)])
    resumed = Master(select(folder), folder)
    again = reach_of(resumed)
    resumed.load_anchor(tmp_path / "anchor", digest)
    with again.update():
        resumed.apply([(9, 1e-4)])
    assert again.told() == reach.told()


def test_a_check_finds_weights_that_are_not_what_they_should_be(folder: Path):
    master = Master(select(folder), folder)
    stale = noise.cast(master.view("a"), "bfloat16")
    reach = reach_of(master, a=stale)
    stale[0, 5] = 0x4000  # 2.0
    with reach.update():
        master.apply([])
    assert reach.told()["drifted"] == 0.0
    reach.check(None, 0.0)
    assert reach.told()["drifted"] == 1 / 3043
    assert reach.told()["drift"] == pytest.approx(abs(2 - float(master.view("a")[0, 5])) / 3043**0.5, rel=0.01)
    reach.check(4, 1e-2)
    assert reach.told()["drifted"] > 0.9


def test_a_frozen_model_has_nothing_to_tell(folder: Path):
    master = Master(with_scales(select(folder), [("*", 0.0)]), folder)
    reach = reach_of(master)
    with reach.update():
        master.apply(TERMS)
    assert reach.told() == {"cosine": 1.0, "cosine_run": 1.0, "drift": 0.0, "drifted": 0.0}


@settings(max_examples=50)
@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=6))
def test_the_sample_lies_inside_the_tensors(sizes: list[int]):
    sample = sample_of([TensorSpec(f"t{i}", (size,), "float32") for i, size in enumerate(sizes)])
    for spec, positions in sample:
        assert 0 <= positions.min() <= positions.max() < spec.size
    assert sum(len(positions) for _, positions in sample) == min(sum(sizes), SAMPLE)


def test_gathering_nothing_gives_nothing():
    assert gather([], lambda *_: np.ones(1, np.float32)).shape == (0,)
