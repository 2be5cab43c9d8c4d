"""The canary on an honest engine and on engines that fail in the ways real ones do."""

import numpy as np
import pytest

from coevo.engines import canary as module
from coevo.engines.canary import MEMBER, run_canary, wrong_tensors
from coevo.errors import CheckFailedError
from coevo.weights import kernels, noise
from coevo.weights.master import Master
from coevo.weights.selection import select, with_scales

PACKED = ("model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.q_proj.weight")


class FakeEngine:
    """Serves bfloat16 arrays and answers with a checksum of them; breaks in one way or another.

    `ignores`: tensors that keep their first weights although new ones are served. `hides`: tensors that
    cannot be read back. `forgets`: the centre is served by subtraction instead of from the master.
    `copies`: tensors that are held right and multiplied with as they were first.
    """

    def __init__(self, master, *, ignores=(), hides=(), forgets=False, stale=False, noisy=False, copies=()):
        self.master, self.copies = master, copies
        self.ignores, self.hides, self.forgets, self.stale, self.noisy = ignores, hides, forgets, stale, noisy
        self.held = {s.name: np.zeros(s.shape, np.uint16) for s in master.selection.tensors}
        self.asked = 0
        self.last = None
        self.fresh = True
        self.serve(None)
        self.first = {name: array.copy() for name, array in self.held.items()}
        self.fresh = False

    def serve(self, perturbation):
        for spec in self.master.selection.tensors:
            if spec.name in self.ignores and not self.fresh:
                continue
            if perturbation is None and self.last is not None and self.forgets:
                self._subtract(spec)
            elif perturbation is None:
                self.master.centre(spec.name, self.held[spec.name])
            else:
                self.master.serve(spec.name, perturbation.seed, perturbation.sigma, self.held[spec.name])
        self.last = perturbation

    def _subtract(self, spec):
        values = noise.from_bfloat16(self.held[spec.name])
        values = values - np.float32(self.last.sigma) * noise.noise(self.last.seed, spec.name, 0, spec.size).reshape(
            spec.shape
        )
        self.held[spec.name][...] = noise.to_bfloat16(values)

    def serve_alone(self, name, seed, sigma):
        self.serve(None)
        if name not in self.ignores:
            self.master.serve(name, seed, sigma, self.held[name])

    def read_served(self, name):
        return None if name in self.hides else self.held[name]

    def logits(self):
        self.asked += 1
        source = self.first if self.stale else {**self.held, **{name: self.first[name] for name in self.copies}}
        total = np.array([int(a.astype(np.uint64).sum()) for a in source.values()], dtype=np.uint64)
        if self.noisy:
            total = total + np.uint64(self.asked)
        return {"prefill": total, "decode": total[::-1].copy()}


@pytest.fixture(scope="module")
def master(tiny):
    return Master(select(tiny), tiny)


def test_an_honest_engine_passes_and_is_left_at_the_centre(master):
    engine = FakeEngine(master)
    found = run_canary(engine, master)
    assert found.read_back == len(master.selection.tensors)
    assert (found.reached, found.unproved, found.repeats) == (0, (), True)
    assert engine.last is None


def test_packed_tensors_that_ignore_new_weights_are_refused_by_name(master):
    with pytest.raises(CheckFailedError) as caught:
        run_canary(FakeEngine(master, ignores=PACKED), master)
    assert "2 of 20 tensors of a perturbed member" in str(caught.value)
    assert all(repr(name) in str(caught.value) for name in PACKED)


def test_packed_tensors_that_cannot_be_read_back_must_reach_the_logits(master):
    assert run_canary(FakeEngine(master, hides=PACKED), master).reached == 2
    with pytest.raises(CheckFailedError, match=r"do not reach the answers: 'model.layers.0.mlp.up_proj.weight'"):
        run_canary(FakeEngine(master, hides=PACKED, ignores=PACKED[:1]), master)


def test_a_tensor_that_is_read_back_but_multiplied_from_a_copy_must_reach_the_logits_too(master):
    found = run_canary(FakeEngine(master), master, copied=PACKED)
    assert (found.read_back, found.reached, found.proved) == (len(master.selection.tensors), 2, PACKED)
    stale = FakeEngine(master, copies=PACKED[1:])
    assert run_canary(stale, master).reached == 0  # nobody has said that there is a copy
    with pytest.raises(CheckFailedError, match=rf"1 tensors do not reach the answers: '{PACKED[1]}'"):
        run_canary(stale, master, copied=PACKED)


def test_tensors_that_may_idle_are_listed_as_unproved(master):
    engine = FakeEngine(master, hides=PACKED, ignores=PACKED[:1])
    found = run_canary(engine, master, may_be_idle=lambda name: "up_proj" in name)
    assert (found.reached, found.unproved) == (1, PACKED[:1])


def test_frozen_tensors_that_cannot_be_read_back_have_nothing_to_prove(tiny):
    master = Master(with_scales(select(tiny), [(PACKED[0], 0.0), (PACKED[1], 3.0)]), tiny)
    assert run_canary(FakeEngine(master, hides=PACKED), master).reached == 1


def test_restoring_by_subtraction_is_refused(master):
    with pytest.raises(CheckFailedError, match="tensors of the centre after a member are not"):
        run_canary(FakeEngine(master, forgets=True), master)


def test_answers_from_a_stale_copy_are_refused(master):
    with pytest.raises(CheckFailedError, match="answers with the centre's; it keeps a copy"):
        run_canary(FakeEngine(master, stale=True), master)


def test_an_engine_that_does_not_repeat_itself_is_not_blamed_for_it(master):
    assert not run_canary(FakeEngine(master, noisy=True), master).repeats


def test_one_wrong_bit_anywhere_is_found(master):
    engine = FakeEngine(master)
    engine.serve(MEMBER)
    specs = master.selection.tensors
    for spec in specs:
        position = int(np.random.default_rng(spec.size).integers(spec.size))
        engine.held[spec.name].reshape(-1)[position] ^= 1
        assert wrong_tensors(specs, engine.read_served, master, MEMBER) == [spec.name]
        engine.held[spec.name].reshape(-1)[position] ^= 1


def test_large_models_are_compared_with_the_kernel_and_sampled_with_the_definition(master, monkeypatch):
    monkeypatch.setattr(module, "WHOLE", 0)
    monkeypatch.setattr(module, "_PIECE", 128)
    monkeypatch.setattr(module, "_SAMPLED", 3)
    engine = FakeEngine(master)
    engine.serve(MEMBER)
    specs = master.selection.tensors
    assert wrong_tensors(specs, engine.read_served, master, MEMBER) == []
    engine.held[PACKED[0]].reshape(-1)[4000] ^= 1  # in no sampled piece
    assert wrong_tensors(specs, engine.read_served, master, MEMBER) == [PACKED[0]]


def test_the_definition_is_still_asked_where_the_kernel_is_wrong(master, monkeypatch):
    """Above `WHOLE` a kernel that is wrong in the same way as the engine must not hide it."""
    monkeypatch.setattr(module, "WHOLE", 0)
    engine = FakeEngine(master)
    monkeypatch.setattr(kernels, "serve", lambda values, out, **kwargs: kernels.copy(values, out))
    engine.serve(MEMBER)
    assert len(wrong_tensors(master.selection.tensors, engine.read_served, master, MEMBER)) == 20


def test_a_missing_or_misshapen_tensor_is_named(master):
    engine = FakeEngine(master)
    engine.held[PACKED[0]] = engine.held[PACKED[0]].T
    assert wrong_tensors(master.selection.tensors, engine.read_served, master, None) == [PACKED[0]]
