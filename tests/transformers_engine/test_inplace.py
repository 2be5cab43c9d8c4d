"""Weights perturbed and restored in place: the arithmetic that is modelled, and what it loses."""

import numpy as np
import pytest
import torch

from coevo.errors import RunError, UserError
from coevo.records import Perturbation, SeedsUpdate
from coevo.weights import noise
from coevo.weights.reach import Look, cosine
from coevo.weights.torch_memory import as_numpy
from coevo_transformers.engine import TransformersEngine
from coevo_transformers.inplace import refuse_elsewhere
from tests.asking_kit import ask, complete
from tests.transformers_engine.test_engine import lease, served

SIGMA = 1e-3
TERMS = ((3, 2e-4), (4, -1e-4), (3, 1e-4))
WAYS = ["inplace", "inplace-sum"]
DTYPES = ["bfloat16", "float16", "float32"]


class Script:
    """What a research script does, written with torch: the only copy is the served one."""

    def __init__(self, engine, dtype):
        self.dtype = getattr(torch, dtype)
        master = engine._session.weights.master
        self.weights = {
            spec.name: torch.tensor(master.view(spec.name)).to(self.dtype) for spec in master.selection.tensors
        }

    def add(self, seed, factor):
        for name, weights in self.weights.items():
            weights.add_(self._noise(seed, factor, name, weights).to(self.dtype))

    def update_at_once(self, terms):
        for name, weights in self.weights.items():
            total = torch.zeros(weights.shape)
            for seed, factor in terms:
                total += self._noise(seed, factor, name, weights)
            weights.add_(total.to(self.dtype))

    def _noise(self, seed, factor, name, weights):
        drawn = noise.noise(seed, name, 0, weights.numel()).reshape(tuple(weights.shape))
        return torch.tensor(np.float32(factor) * drawn)

    def equals(self, found):
        return all(np.array_equal(as_numpy(self.weights[name]), found[name]) for name in found)


def generation(engine, number, members=4):
    for member in range(members):
        lease(engine, Perturbation(100 * number + member, SIGMA))
    engine.apply(SeedsUpdate(terms=tuple((100 * number + m, 3e-4 * (-1) ** m) for m in range(members))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_it_does_what_a_script_does(new_engine, way, dtype):
    engine = new_engine(dtype=dtype, weights=way)
    script = Script(engine, dtype)
    assert script.equals(served(engine))
    for seed in (11, 12, 13):
        script.add(seed, SIGMA)
        _, found = lease(engine, Perturbation(seed, SIGMA))
        assert script.equals(found)
        script.add(seed, -SIGMA)
    engine.apply(SeedsUpdate(terms=TERMS))
    merged = [(3, 2e-4 + 1e-4), (4, -1e-4)]
    if way == "inplace-sum":
        script.update_at_once(merged)
    else:
        for term in merged:
            script.add(*term)
    assert script.equals(served(engine))
    _, centre = lease(engine, None)
    assert script.equals(centre)


@pytest.mark.parametrize("way", WAYS)
def test_the_master_moves_exactly_beside_it(new_engine, way):
    exact, inplace = new_engine(dtype="bfloat16"), new_engine(dtype="bfloat16", weights=way)
    for number in range(3):
        for engine in (exact, inplace):
            generation(engine, number)
        assert inplace.digest() == exact.digest()


@pytest.mark.parametrize("way", WAYS)
def test_it_loses_what_the_master_keeps(new_engine, way):
    exact, inplace = new_engine(dtype="bfloat16"), new_engine(dtype="bfloat16", weights=way)
    for number in range(5):
        for engine in (exact, inplace):
            generation(engine, number)
    kept, lost = exact.reached(), inplace.reached()
    assert kept["drift"] == kept["drifted"] == 0.0
    assert lost["drift"] > 1e-5
    assert lost["drifted"] > 0.03
    assert lost["cosine_run"] < kept["cosine_run"]


def test_the_sum_arrives_better_than_its_terms(new_engine):
    terms = SeedsUpdate(terms=tuple((seed, 1e-4) for seed in range(16)))
    told = {}
    for way in WAYS:
        engine = new_engine(dtype="bfloat16", weights=way)
        engine.apply(terms)
        told[way] = engine.reached()["cosine"]
    exact = new_engine(dtype="bfloat16")
    exact.apply(terms)
    assert told["inplace"] < told["inplace-sum"]
    # The base is in bf16 itself: the first sum is rounded as the exact way rounds it, but for its own rounding.
    assert told["inplace-sum"] == pytest.approx(exact.reached()["cosine"], abs=0.02)


def test_what_it_tells_is_measured_on_what_is_served(new_engine):
    """The model is small enough to compare with all of it, the sample being drawn from it."""
    engine = new_engine(dtype="bfloat16", weights="inplace")
    weights = engine._session.weights

    def look():
        flat = [noise.from_bfloat16(values).reshape(-1) for values in served(engine).values()]
        meant = [weights.master.view(spec.name).reshape(-1) for spec in weights.selection.tensors]
        return Look(np.concatenate(meant), np.concatenate(flat))

    base = look()
    generation(engine, 0)
    lease(engine, Perturbation(1, SIGMA))
    lease(engine, None)
    before = look()
    generation(engine, 1, members=0)
    engine.apply(SeedsUpdate(terms=TERMS))
    after, told = look(), engine.reached()
    assert told["cosine"] == pytest.approx(cosine(before, after), abs=0.02)
    assert told["cosine_run"] == pytest.approx(cosine(base, after), abs=0.02)
    wrong = after.served - noise.from_bfloat16(noise.to_bfloat16(after.meant))
    assert told["drift"] == pytest.approx(float(np.sqrt(np.mean(wrong**2))), rel=0.1)
    assert told["drifted"] == pytest.approx(float(np.mean(wrong != 0)), rel=0.05)


def test_a_member_stays_while_its_chunks_follow_one_another(new_engine):
    engine = new_engine(dtype="bfloat16", weights="inplace")
    member = Perturbation(5, SIGMA)
    (one, a), (other, b) = lease(engine, member), lease(engine, member)
    assert one == other
    assert all(np.array_equal(a[name], b[name]) for name in a)


def test_weights_that_may_differ_have_different_names(new_engine):
    engine, exact = new_engine(dtype="bfloat16", weights="inplace"), new_engine(dtype="bfloat16")
    names = [lease(engine, member)[0] for member in (None, Perturbation(1, SIGMA), None, Perturbation(1, SIGMA))]
    assert len({*names, lease(exact, None)[0]}) == 5


def test_frozen_tensors_stay_and_scales_count(new_engine):
    engine = new_engine(dtype="bfloat16", weights="inplace", scales={"*norm*": 0.0})
    (_, before), (_, after) = lease(engine, None), lease(engine, Perturbation(1, 0.1))
    for name, array in before.items():
        assert np.array_equal(array, after[name]) == ("norm" in name), name


def test_a_member_that_is_refused_leaves_the_weights(new_engine):
    engine = new_engine(dtype="bfloat16", weights="inplace")
    lease(engine, Perturbation(1, SIGMA))
    with pytest.raises(ValueError, match="not a finite float32"):
        lease(engine, Perturbation(2, 1e39))
    with pytest.raises(ValueError, match="64-bit"):
        engine.apply(SeedsUpdate(terms=((-1, 1e-3),)))
    _, after = lease(engine, Perturbation(1, SIGMA))
    script = Script(engine, "bfloat16")
    for factor in (SIGMA, -SIGMA, SIGMA):  # the update that was refused had the member subtracted
        script.add(1, factor)
    assert script.equals(after)


def test_weights_that_are_lost_are_not_served(new_engine, monkeypatch):
    engine = new_engine(dtype="bfloat16", weights="inplace")
    from coevo.weights import kernels

    real, calls = kernels.add, []

    def breaks(*arguments, **options):
        calls.append(1)
        if len(calls) > 3:
            raise MemoryError
        real(*arguments, **options)

    monkeypatch.setattr(kernels, "add", breaks)
    with pytest.raises(MemoryError):
        lease(engine, Perturbation(1, SIGMA))
    monkeypatch.setattr(kernels, "add", real)
    with pytest.raises(RunError, match="lost half way"):
        lease(engine, None)


def test_an_anchor_is_the_master_and_is_served_anew(new_engine, tmp_path):
    engine, other = (new_engine(dtype="bfloat16", weights="inplace") for _ in range(2))
    generation(engine, 0)
    engine.save_anchor(tmp_path / "anchor")
    lease(other, Perturbation(1, SIGMA))
    other.load_anchor(tmp_path / "anchor")
    _, found = lease(other, None)
    for spec in other._session.weights.selection.tensors:
        expected = noise.to_bfloat16(engine._session.weights.master.view(spec.name))
        assert np.array_equal(found[spec.name], expected)


def test_a_damaged_anchor_leaves_what_is_served(new_engine, tmp_path):
    engine = new_engine(dtype="bfloat16", weights="inplace")
    generation(engine, 0)
    before = served(engine)
    (tmp_path / "anchor").write_bytes(b"no anchor")
    engine.load_anchor(tmp_path / "anchor")
    _, after = lease(engine, None)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_an_export_is_what_was_meant(new_engine, tmp_path):
    inplace, exact = new_engine(dtype="bfloat16", weights="inplace"), new_engine(dtype="bfloat16")
    for engine, name in ((inplace, "inplace"), (exact, "exact")):
        generation(engine, 0)
        engine.export(tmp_path / name)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("inplace", "exact")]
    assert files[0] == files[1]


def test_it_says_what_it_is(tiny):
    for way, said in zip(WAYS, ("in place (inexact", "in place, update summed in fp32 (inexact"), strict=True):
        engine = TransformersEngine(str(tiny), dtype="bfloat16", weights=way)
        try:
            assert engine.describe()["weights"] == f"{said}, for comparison)"
            assert "canary" not in engine.describe()
            assert engine.record()["weights"] == way
            assert not engine.capabilities.deterministic
            assert complete(engine, [ask("x")])[0].completion_ids
        finally:
            engine.close()


def test_the_exact_way_does_not_mention_it(shared_engine):
    assert "weights" not in shared_engine.describe()
    assert shared_engine.record()["weights"] == "exact"


def test_elsewhere_it_is_refused_in_one_line(tiny):
    with pytest.raises(UserError, match=r"'inplace' runs on the CPU only, for comparison; the model is on cuda:0"):
        refuse_elsewhere("inplace", torch.device("cuda:0"), "host")
    with pytest.raises(UserError, match="serves nothing from the master; set master = 'host' or 'disk'"):
        TransformersEngine(str(tiny), weights="inplace", master="device")
