"""The engine's contract on real vLLM, with a tiny random Llama; what is packed has tests of its own."""

import asyncio
import os
import time

import pytest

from coevo.errors import UserError
from coevo.records import Perturbation, SeedsUpdate
from tests.asking_kit import ask, complete

pytestmark = pytest.mark.vllm

PATIENCE_SECONDS = 300


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


def test_a_chunk_that_is_asked_again_in_step_gets_the_same_bits_also_with_long_prompts(stepping):
    engine = stepping
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
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not engine._session.pump._asked:
                assert time.monotonic() < deadline
                await asyncio.sleep(0)
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
    assert "drift" not in engine.reached()  # what may be packed is not read back between two members
    assert complete(engine, [ask("x", logprobs=True, temperature=0.0)]) != said


def test_a_context_is_held_against_the_models_own(make_vllm, tiny):
    with pytest.raises(UserError, match=r"vllm.context got 99999: expected 3 to 512 tokens"):
        make_vllm(tiny, context=99_999)
    assert make_vllm(tiny, context=3)._session.canary.unproved == ()


def test_a_folder_that_holds_no_model_is_one_line(make_vllm, tmp_path):
    with pytest.raises(UserError):
        make_vllm(tmp_path)
