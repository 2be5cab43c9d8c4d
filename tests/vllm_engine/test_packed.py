"""Weights that vLLM packs and weights that it does not: which they are differs by processor and format, what coevo
promises does not.

Two engines are asked. On most processors one of them has packed weights and the other has not; the tests ask which.
"""

from contextlib import contextmanager

import numpy as np
import pytest

from coevo.engines.canary import run_canary, wrong_tensors
from coevo.errors import CheckFailedError, UserError
from coevo.records import Perturbation
from coevo_vllm.canarying import Inspection
from tests.asking_kit import ask, complete

pytestmark = pytest.mark.vllm

MEMBER = Perturbation(99, 0.05)
FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj",
         "gate_proj": "gate_up_proj", "up_proj": "gate_up_proj"}  # fmt: skip
ALIAS = "model.embed_tokens.weight as lm_head.weight"


@pytest.fixture(params=["engine", "stepping"])
def either(request):
    """Each of the two, with the centre served again after the test."""
    found = request.getfixturevalue(request.param)
    yield found
    weights = found._session.weights
    weights._changed()  # whatever a test has left in the workers
    weights.serve(None)


def parameter_of(name):
    """The parameter that vLLM has a tensor in, alone or fused with others."""
    return ".".join(FUSED.get(part, part) for part in name.split("."))


def parameters(engine):
    """Every parameter that the worker's model names."""
    session = engine._session
    (found,) = session.pump.do(
        lambda: session.pump.llm.collective_rpc(lambda worker: dict(worker.get_model().named_parameters()))
    )
    return found


@contextmanager
def listening(session):
    session.rpc("coevo_listen", True)
    try:
        yield Inspection(session.weights, session.rpc, session._generate, session._vocabulary)
    finally:
        session.rpc("coevo_listen", False)


def test_packed_is_what_is_no_longer_among_the_models_parameters(either):
    weights = either._session.weights
    held = parameters(either)
    empty = {name for name, parameter in held.items() if not parameter.numel()}
    assert {parameter_of(name) for name in weights.packed} == empty
    assert {parameter_of(spec.name) for spec in weights.selection.tensors} == set(held)


@pytest.mark.parametrize("member", [None, MEMBER], ids=["centre", "member"])
def test_what_is_not_packed_is_read_back_bit_for_bit(either, member):
    weights = either._session.weights
    complete(either, [ask("x")], member)
    readable = [spec for spec in weights.selection.tensors if spec.name not in weights.packed]
    assert {"model.embed_tokens.weight", "model.norm.weight"} <= {spec.name for spec in readable}
    assert wrong_tensors(readable, weights.read, weights.master, member) == []
    assert all(weights.read(name) is None for name in weights.packed)


def test_the_served_digest_is_of_all_that_generates_or_there_is_none(either):
    weights = either._session.weights
    if weights.packed:
        with pytest.raises(UserError, match=rf"holds {len(weights.packed)} of .* packed.*cannot be read back"):
            either.served_digest()
        return
    complete(either, [ask("x")])
    centre = either.served_digest()
    complete(either, [ask("x")], MEMBER)
    assert either.served_digest() != centre
    complete(either, [ask("x")])
    assert either.served_digest() == centre


def test_every_tensor_is_proved_in_one_way_or_the_other(either):
    canary = either._session.canary
    packed = either._session.weights.packed
    assert canary.unproved == ()
    assert canary.read_back == len(either._session.weights.selection.tensors) - len(packed)
    # The tied head is asked about through the answers whether it has a copy or not.
    assert set(canary.proved) == {*packed, ALIAS}
    assert canary.reached == len(packed) + 1


class LoopOverParameters:
    """The way that fails: noise added to every parameter that the worker's model names (and then, more kindly than
    such loops are, copied back)."""

    def __init__(self, engine, real):
        self.engine, self.real = engine, real
        self.first = {name: parameter.detach().clone() for name, parameter in parameters(engine).items()}

    def _add(self, perturbation, only=None):
        import torch

        def loop():
            for name, parameter in held.items():
                parameter.data.copy_(self.first[name])
                if perturbation is not None and only in (None, name):
                    generator = torch.Generator().manual_seed(perturbation.seed)
                    noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                    parameter.data.add_(perturbation.sigma * noise)

        held = parameters(self.engine)
        self.engine._session.pump.do(loop)

    def serve(self, perturbation):
        self._add(perturbation)

    def serve_alone(self, name, seed, sigma):
        # With the tensors that vLLM has fused with it: more kindly still.
        self._add(Perturbation(seed, sigma), only=parameter_of(name))

    def read_served(self, name):
        return None  # judged by what it answers alone

    def logits(self):
        return self.real.logits()


def test_a_loop_over_named_parameters_is_refused_exactly_where_it_leaves_packed_weights_alone(either):
    """Where vLLM packs, it leaves empty parameters: such a loop perturbs a fifth of the demo model."""
    weights = either._session.weights
    with listening(either._session) as honest:
        loop = LoopOverParameters(either, honest)
        if weights.packed:
            said = rf"new weights of {len(weights.packed)} tensors do not reach the answers.*proj"
            with pytest.raises(CheckFailedError, match=said):
                run_canary(loop, weights.master)
        else:
            assert run_canary(loop, weights.master).reached == len(weights.selection.tensors)


def test_a_tied_head_that_keeps_its_packed_copy_is_found_out(either, monkeypatch, tmp_path):
    """vLLM's reload alone leaves the head of a tied model with the packed weights of before, if it has such a copy."""
    from coevo_vllm.streaming import Streaming

    monkeypatch.setenv("COEVO_CACHE", str(tmp_path))
    with monkeypatch.context() as without:
        without.setattr(Streaming, "_pack_again", lambda self, before: None)
        if either._session.weights.packed:
            with pytest.raises(CheckFailedError, match=rf"do not reach the answers: .*{ALIAS}"):
                either._session._prove()
        else:
            assert ALIAS in either._session._prove().proved


def test_only_the_head_is_packed_again_and_only_after_its_weight_was_loaded(either, monkeypatch):
    (streaming,) = either._session.pump.do(
        lambda: either._session.pump.llm.collective_rpc(lambda worker: worker._coevo)
    )
    ((embedding, head),) = streaming._sharing
    assert embedding.weight is head.weight
    packed = []
    for module in (embedding, head):
        method, plain = module.quant_method, module.quant_method.process_weights_after_loading
        monkeypatch.setattr(
            method, "process_weights_after_loading", lambda layer, plain=plain: (packed.append(layer), plain(layer))[1]
        )
    names = [spec.name for spec in either._session.weights.selection.tensors]
    either._session.weights.serve_alone([name for name in names if ".layers.0." in name], "", 0, 0.0)
    assert packed == []
    either._session.weights.serve_alone(["model.embed_tokens.weight"], "", 0, 0.0)
    assert [layer is head for layer in packed] == [False, True]


def test_a_proof_is_kept_for_this_processor_and_not_made_again(either, monkeypatch, tmp_path):
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path))
    session, asked = either._session, []
    for way in ("serve_alone", "serve_unseen"):
        plain = getattr(Inspection, way)

        def noted(self, name, *rest, plain=plain):
            asked.append(name)
            plain(self, name, *rest)

        monkeypatch.setattr(Inspection, way, noted)
    first = session._prove()
    assert len(asked) == first.reached > 0
    asked.clear()
    again = session._prove()
    assert (asked, again.proved, again.reached) == ([], first.proved, first.reached)
    monkeypatch.setitem(session.weights.workers[0], "processor", "another one, which may pack for another kernel")
    assert session._prove().proved == first.proved
    assert len(asked) == first.reached


def test_answers_follow_the_member_and_come_back(either):
    question = [ask("x", temperature=0.0, logprobs=True)]
    centre = complete(either, question)
    assert complete(either, question, MEMBER)[0].logprobs != centre[0].logprobs
    back = complete(either, question)
    assert np.allclose(back[0].logprobs, centre[0].logprobs, atol=0.05)


def test_without_a_canary_nobody_knows_what_is_packed(make_vllm, tiny):
    engine = make_vllm(tiny, canary=False)
    with pytest.raises(UserError, match=r"found out by the canary; set vllm.canary to true"):
        engine.served_digest()
