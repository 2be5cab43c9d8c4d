"""The engine's contract on real vLLM, with a tiny random Llama."""

import asyncio
import os

import pytest

from coevo.errors import CheckFailedError, UserError
from coevo.records import Perturbation, SeedsUpdate
from tests.asking_kit import ask, complete

pytestmark = pytest.mark.vllm


@pytest.fixture(scope="module")
def engine(make_vllm, tiny):
    return make_vllm(tiny)


def test_a_stop_string_ends_an_answer_and_is_not_in_it(engine):
    free = complete(engine, [ask("x", seed=3, max_new_tokens=40)])[0]
    assert len(free.text) > 6
    stop = free.text[3:5]
    cut = complete(engine, [ask("x", seed=3, max_new_tokens=40, stop=[stop])])[0]
    assert cut.finish_reason == "stop"
    assert cut.text == free.text[: free.text.index(stop)]


def test_the_answer_goes_on_after_the_prefill(engine):
    plain, given = complete(engine, [ask("x"), ask("x", prefill="abc")])
    assert len(given.prompt_ids) == len(plain.prompt_ids) + 3


def test_log_probabilities_are_told_where_they_are_asked_for(engine):
    told, silent = complete(engine, [ask("x", logprobs=True), ask("x")])
    assert silent.logprobs is None
    assert len(told.logprobs) == len(told.completion_ids)
    assert all(value <= 0 for value in told.logprobs)


def test_what_does_not_fit_the_context_says_so_and_the_others_are_answered(engine):
    long, short = complete(engine, [ask("x" * 600), ask("x")])
    assert (long.finish_reason, long.completion_ids) == ("context_overflow", ())
    assert short.completion_ids


def test_requests_of_one_lease_come_back_in_order_however_many_are_asked_at_once(engine):
    async def run():
        async with engine.lease(None) as policy:
            asked = [policy.complete([ask(f"{i}", seed=i, max_new_tokens=1 + i % 5)]) for i in range(12)]
            return await asyncio.gather(*asked)

    lengths = [len(answer.completion_ids) for [answer] in asyncio.run(run())]
    assert all(1 <= length <= 1 + i % 5 for i, length in enumerate(lengths))


def test_a_chunk_that_is_asked_again_in_step_gets_the_same_bits_also_with_long_prompts(make_vllm, tiny):
    engine = make_vllm(tiny, rolling=False, canary=False)
    shared = "a beginning that all of them share " * 8
    questions = [ask(f"{shared}{i}", seed=i, logprobs=True, max_new_tokens=12) for i in range(6)]
    first = complete(engine, questions)
    complete(engine, questions[:2])  # a chunk that leaves their beginning in the cache
    complete(engine, questions, Perturbation(1, 0.01))
    assert complete(engine, questions) == first


def test_more_prompts_than_one_forward_has_room_for_are_all_answered(engine):
    """With seeds of their own; vLLM on the CPU fails at prompts that it prefills in parts."""
    answers = complete(engine, [ask("long " * 60 + str(i), seed=i, top_p=0.95) for i in range(40)])
    assert sum(len(answer.prompt_ids) for answer in answers) > 2 * 4096
    assert all(answer.completion_ids for answer in answers)


def test_a_cancelled_question_leaves_the_engine_free(engine):
    async def run():
        async with engine.lease(None) as policy:
            waiting = asyncio.create_task(policy.complete([ask("x", max_new_tokens=400)]))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with engine.lease(Perturbation(1, 0.01)) as policy:
            return await policy.complete([ask("x")])

    assert asyncio.run(run())[0].completion_ids
    assert not engine._session.pump._asked


def test_a_policy_that_has_ended_answers_no_more(engine):
    async def run():
        async with engine.lease(None) as policy:
            pass
        await policy.complete([ask("x")])

    with pytest.raises(RuntimeError, match="lease ended"):
        asyncio.run(run())


def test_the_master_lies_in_a_file_without_a_name(engine):
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    assert not [name for name in names if name.startswith("coevo-")]


def test_an_update_moves_the_digest_and_the_centre_that_is_served(engine):
    before, said = engine.digest(), complete(engine, [ask("x", logprobs=True, temperature=0.0)])
    engine.apply(SeedsUpdate(((5, 0.05), (6, -0.02))))
    assert engine.digest() != before
    assert engine.reached()["cosine"] > 0.9
    assert "drift" not in engine.reached()  # not all of it can be read back
    assert complete(engine, [ask("x", logprobs=True, temperature=0.0)]) != said


def test_packed_weights_are_not_read_as_if_they_were_whole(engine):
    if not engine._session.canary.reached:
        pytest.skip("nothing is packed on this device")
    with pytest.raises(UserError, match=r"packed.*cannot be read back"):
        engine.served_digest()


class LoopOverParameters:
    """The way that fails: noise added to every parameter that the worker's model names (and then, more kindly than
    such loops are, copied back)."""

    def __init__(self, engine, real):
        self.engine, self.real = engine, real

    def _add(self, perturbation, only=None):
        def loop(worker):
            import torch

            parameters = dict(worker.get_model().named_parameters())
            if not hasattr(worker, "first"):
                worker.first = {name: parameter.detach().clone() for name, parameter in parameters.items()}
            for name, parameter in parameters.items():
                parameter.data.copy_(worker.first[name])
                if perturbation is not None and only in (None, name):
                    generator = torch.Generator().manual_seed(perturbation.seed)
                    noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                    parameter.data.add_(perturbation.sigma * noise)

        self.engine._session.pump.do(lambda: self.engine._session.pump.llm.collective_rpc(loop))

    def serve(self, perturbation):
        self._add(perturbation)

    def serve_alone(self, name, seed, sigma):
        self._add(Perturbation(seed, sigma), only=name)

    def read_served(self, name):
        return None  # judged by what it answers alone

    def logits(self):
        return self.real.logits()


def test_a_loop_over_named_parameters_leaves_packed_weights_alone_and_is_refused(make_vllm, tiny):
    """On the CPU vLLM packs linear weights and leaves empty parameters: such a loop perturbs a fifth of the model."""
    from coevo.canary import run_canary
    from coevo_vllm.canarying import Inspection

    engine = make_vllm(tiny, canary=False)
    session = engine._session
    session.rpc("coevo_listen", True)
    honest = Inspection(session.weights, session.rpc, session._generate, session._vocabulary)
    with pytest.raises(CheckFailedError, match=r"do not reach the answers.*(proj|mlp)"):
        run_canary(LoopOverParameters(engine, honest), session.weights.master)
    session.rpc("coevo_listen", False)


def test_a_tied_head_that_keeps_its_packed_copy_is_found_out(make_vllm, tiny, monkeypatch, tmp_path):
    """vLLM's reload alone leaves the head of a tied model on the CPU with the weights of before."""
    from coevo_vllm.streaming import Streaming

    monkeypatch.setenv("COEVO_CACHE", str(tmp_path))
    monkeypatch.setattr(Streaming, "_pack_again", lambda self: None)
    with pytest.raises(CheckFailedError, match=r"do not reach the answers.*embed_tokens.weight as lm_head.weight"):
        make_vllm(tiny)


def test_a_proof_is_kept_and_not_made_again(make_vllm, tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("COEVO_CACHE", str(tmp_path))
    first = make_vllm(tiny)._session.canary
    monkeypatch.setattr("coevo_vllm.canarying.Inspection.serve_alone", lambda *_: pytest.fail("asked again"))
    second = make_vllm(tiny)._session.canary
    assert second.proved == first.proved
    assert second.reached == first.reached > 0


def test_a_context_is_held_against_the_models_own(make_vllm, tiny):
    with pytest.raises(UserError, match=r"vllm.context got 99999: expected 3 to 512 tokens"):
        make_vllm(tiny, context=99_999)
    assert make_vllm(tiny, context=3)._session.canary.unproved == ()


def test_a_folder_that_holds_no_model_is_one_line(make_vllm, tmp_path):
    with pytest.raises(UserError):
        make_vllm(tmp_path)
