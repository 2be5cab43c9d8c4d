"""Two workers share a model: the same journal, the same digests, and their shards together are the served weights."""

import numpy as np
import pytest

from coevo.engines.canary import wrong_tensors
from coevo.errors import CheckFailedError
from coevo.records import Perturbation, SeedsUpdate
from coevo.weights.master import Master
from coevo.weights.selection import select
from tests.asking_kit import ask, complete
from tests.tiny_llama import save_tiny_llama

pytestmark = pytest.mark.vllm

JOURNAL = [SeedsUpdate(((11, 0.03), (12, -0.01))), SeedsUpdate(((13, 0.02),)), SeedsUpdate(((14, -0.02), (11, 0.01)))]
MEMBER = Perturbation(99, 0.02)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("torch")
    return save_tiny_llama(tmp_path_factory.mktemp("models") / "untied", width=128, tied=False)


@pytest.fixture(scope="module")
def engine(make_vllm, model):
    return make_vllm(model, tensor_parallel=2)


@pytest.fixture(scope="module")
def alone(make_vllm, model):
    return make_vllm(model)


def test_each_worker_has_a_shard(engine):
    workers = engine._session.weights.workers
    assert sorted(worker["rank"] for worker in workers) == [0, 1]
    held = engine._session.rpc("coevo_read", "model.embed_tokens.weight")
    sizes = [sum(sum(part[2]) for part in worker) for worker in held]
    whole = engine._session.weights.master.view("model.embed_tokens.weight").size
    assert sum(sizes) == whole
    assert all(0 < size < whole for size in sizes)


def test_the_journal_gives_the_digests_that_one_master_gives(engine, model):
    alone = Master(select(model), model)
    assert engine.digest() == alone.digest()
    for update in JOURNAL:
        engine.apply(update)
        alone.apply(update.terms)
        assert engine.digest() == alone.digest()


@pytest.mark.parametrize("member", [None, MEMBER], ids=["centre", "member"])
def test_the_shards_together_are_the_served_weights_bit_for_bit(engine, member):
    weights = engine._session.weights
    complete(engine, [ask("x")], member)
    readable = [spec for spec in weights.selection.tensors if spec.name in weights.readable]
    assert {"model.embed_tokens.weight", "model.norm.weight"} <= {spec.name for spec in readable}
    assert wrong_tensors(readable, weights.read, weights.master, member) == []


def test_a_shard_of_another_member_would_be_noticed(engine):
    weights = engine._session.weights
    complete(engine, [ask("x")], MEMBER)
    specs = [spec for spec in weights.selection.tensors if spec.name in weights.readable]
    assert len(wrong_tensors(specs, weights.read, weights.master, Perturbation(98, 0.02))) == len(specs)


def test_two_workers_answer_as_one_does_up_to_rounding(engine, alone):
    questions = [ask(text, temperature=0.0, max_new_tokens=1, logprobs=True) for text in ("a", "bc", "def")]
    two = complete(engine, questions, MEMBER)
    for update in JOURNAL:
        alone.apply(update)
    one = complete(alone, questions, MEMBER)
    assert alone.digest() == engine.digest()
    told = [np.array([c.logprobs[0] for c in answers]) for answers in (one, two)]
    assert np.abs(told[0] - told[1]).max() < 0.2


def test_a_head_that_can_be_read_is_asked_about_too_where_a_copy_of_it_is_multiplied(alone, monkeypatch, tmp_path):
    """Not tied: what is read back is right, and the answers come from a copy that nobody can read."""
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path))
    session = alone._session
    assert "lm_head.weight" in session.weights.readable
    assert ("lm_head.weight" in session.weights.copied) == bool(session.weights.packed)
    (model,) = session.pump.do(lambda: session.pump.llm.collective_rpc(lambda worker: worker.get_model()))
    with monkeypatch.context() as without:
        without.setattr(model.lm_head.quant_method, "process_weights_after_loading", lambda layer: None)
        if session.weights.packed:
            with pytest.raises(CheckFailedError, match=r"1 tensors do not reach the answers: 'lm_head.weight'"):
                session._prove()
        else:
            session._prove()
    session.weights._changed()
    session.weights.serve(None)
