"""The decoding loop against transformers' own generate, and against itself without its shortcuts."""

import asyncio
import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coevo.errors import UserError
from coevo_transformers.cache import growing_cache, is_plain
from coevo_transformers.decode import Decoder, common_start
from tests.asking_kit import ask, complete

TEXTS = ["a", "the quick brown fox", "the quick brown dog jumps over", "zebra " * 9]


def generate(engine, request, new_tokens):
    """What transformers' own greedy generate gives for a request, without the eos token at the end."""
    session = engine._session
    model, tokenizer = session.decoder.model, session.prompts._tokenizer
    ids = torch.tensor([session.prompts(request).ids])
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False)
    assert tokenizer.eos_token_id in session.completer._eos
    return out[0, ids.shape[1] :].tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_greedy_equals_generate(new_engine, dtype):
    """One prompt at a time, so that the same shapes go through the same kernels also in bfloat16."""
    engine = new_engine(dtype=dtype)
    for text in TEXTS:
        request = ask(text, temperature=0.0, max_new_tokens=24)
        assert list(complete(engine, [request])[0].completion_ids) == generate(engine, request, 24)


def test_a_padded_batch_with_a_shared_beginning_equals_single_prompts(shared_engine):
    """float32, greedy: batch company changes logits by 1e-6 here, peaked choices by nothing."""
    long = "You are a careful engineer who answers in one line. " * 3
    requests = [ask(long + text, temperature=0.0, max_new_tokens=16) for text in TEXTS for _ in range(2)]
    together = complete(shared_engine, requests)
    assert [c.completion_ids for c in together] == [
        complete(shared_engine, [request])[0].completion_ids for request in requests
    ]


def test_eager_attention_says_the_same(new_engine, shared_engine):
    requests = [ask(text, temperature=0.0, max_new_tokens=12) for text in TEXTS]
    engine = new_engine(attention="eager")
    assert not engine._session.decoder.ready_masks
    assert [c.completion_ids for c in complete(engine, requests)] == [
        c.completion_ids for c in complete(shared_engine, requests)
    ]


def test_sampling_does_not_depend_on_the_order_of_the_requests(shared_engine):
    requests = [ask(text, seed=i, max_new_tokens=12) for i, text in enumerate(TEXTS * 3)]
    order = np.random.default_rng(0).permutation(len(requests))
    straight = complete(shared_engine, requests)
    mixed = complete(shared_engine, [requests[i] for i in order])
    assert [straight[i] for i in order] == mixed


def test_a_repeated_batch_is_the_same_to_the_last_bit(new_engine):
    engine = new_engine(dtype="bfloat16")
    requests = [ask(text, seed=i, max_new_tokens=20, logprobs=True) for i, text in enumerate(TEXTS * 4)]
    assert complete(engine, requests) == complete(engine, requests)


def test_rows_that_end_early_do_not_change_what_the_others_say(shared_engine):
    short = [ask(text, seed=i, max_new_tokens=2) for i, text in enumerate(TEXTS)]
    long = [ask(text, seed=10 + i, max_new_tokens=16, temperature=0.0) for i, text in enumerate(TEXTS)]
    mixed = complete(shared_engine, short + long)
    assert [len(c.completion_ids) for c in mixed[:4]] == [2, 2, 2, 2]
    assert [c.completion_ids for c in mixed[4:]] == [c.completion_ids for c in complete(shared_engine, long)]


def test_more_requests_than_rows_are_answered_in_order(new_engine):
    engine = new_engine(rows=3)
    requests = [ask(text, temperature=0.0, max_new_tokens=4) for text in TEXTS * 3]
    answers = complete(engine, requests)
    assert [a.prompt_ids for a in answers] == [engine._session.prompts(r).ids for r in requests]
    assert answers[0] == answers[4] == answers[8]


def test_batches_keep_within_the_cache(new_engine, monkeypatch):
    engine = new_engine(rows=8, cache_tokens=200)
    decoder, sizes = engine._session.decoder, []
    real = decoder.generate
    monkeypatch.setattr(
        decoder, "generate", lambda prompts, most, step: (sizes.append((len(prompts), most)), real(prompts, most, step))
    )
    requests = [ask("a" * n, temperature=0.0, max_new_tokens=4) for n in (1, 1, 1, 60, 60, 300)]
    answers = complete(engine, requests)
    assert sizes == [(3, 4), (2, 4), (1, 4)]
    assert [len(a.completion_ids) for a in answers] == [4] * 6


def test_logprobs_are_those_of_the_unfiltered_model(shared_engine):
    request = ask("hello", seed=1, max_new_tokens=5, logprobs=True, temperature=0.5, top_k=3)
    answer = complete(shared_engine, [request, ask("other")])[0]
    model = shared_engine._session.decoder.model
    with torch.inference_mode():
        logits = model(torch.tensor([answer.prompt_ids + answer.completion_ids])).logits[0]
    expected = torch.log_softmax(logits, -1)[len(answer.prompt_ids) - 1 : -1]
    expected = expected.gather(-1, torch.tensor(answer.completion_ids)[:, None])[:, 0]
    assert answer.logprobs == pytest.approx(expected.tolist(), abs=1e-4)
    assert complete(shared_engine, [ask("hello")])[0].logprobs is None


def test_a_request_that_does_not_fit_says_so_and_the_others_go_on(shared_engine):
    answers = complete(
        shared_engine, [ask("a"), ask("b" * 600), ask("c", max_new_tokens=600), ask("d", temperature=0.0)]
    )
    assert [a.finish_reason for a in answers[1:3]] == ["context_overflow"] * 2
    assert answers[1].completion_ids == ()
    assert len(answers[1].prompt_ids) > 600
    assert answers[3] == complete(shared_engine, [ask("d", temperature=0.0)])[0]


def test_the_end_of_turn_token_is_recorded_but_not_shown(shared_engine):
    eos = int(shared_engine._session.completer._eos[0])
    answers = complete(shared_engine, [ask("x", seed=i, temperature=3.0, max_new_tokens=200) for i in range(16)])
    ended = [a for a in answers if a.finish_reason == "stop"]
    assert ended
    assert all(a.completion_ids[-1] == eos and "im_end" not in a.text for a in ended)
    assert all(len(a.completion_ids) == 200 for a in answers if a.finish_reason == "length")


def test_stop_strings_end_a_completion(shared_engine):
    requests = [ask("x", seed=i, stop=["e", "\n"], max_new_tokens=100, temperature=2.0) for i in range(8)]
    for answer in complete(shared_engine, requests):
        assert "e" not in answer.text
        assert "\n" not in answer.text
        assert answer.finish_reason == ("length" if len(answer.completion_ids) == 100 else "stop")


def test_no_requests_are_no_completions(shared_engine):
    assert complete(shared_engine, []) == []


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=5))
def test_the_common_start_is_shared_by_all_and_leaves_each_a_token(prompts):
    shared = common_start(prompts)
    assert all(prompt[:shared] == prompts[0][:shared] for prompt in prompts)
    assert shared < min(len(p) for p in prompts)
    if shared < min(len(p) for p in prompts) - 1:
        assert len({tuple(p[: shared + 1]) for p in prompts}) > 1


def test_a_cache_that_grows_in_place_holds_what_transformers_holds(shared_engine):
    from transformers import DynamicCache

    model = shared_engine._session.decoder.model
    assert is_plain(model.config)
    mine, theirs = growing_cache(model.config, 12), DynamicCache(config=model.config)
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    with torch.inference_mode():
        for cache in (mine, theirs):
            name = shared_engine._session.decoder._cache_name
            model(ids, use_cache=True, **{name: cache})
            cache.reorder_cache(torch.tensor([1, 0, 1]))
            model(torch.tensor([[1], [2], [3]]), use_cache=True, **{name: cache})
    for a, b in zip(mine.layers, theirs.layers, strict=True):
        assert a.get_seq_length() == b.get_seq_length() == 4
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)


def test_shortcuts_that_a_model_does_not_take_are_given_up(shared_engine, monkeypatch):
    model = shared_engine._session.decoder.model
    real = type(model).forward
    decoder = Decoder(model, 0)
    assert (decoder.shares, decoder.ready_masks) == (True, True)

    @functools.wraps(real)
    def picky(self, *args, attention_mask, **kwargs):
        assert attention_mask.dim() == 2, "takes no ready masks"
        return real(self, *args, attention_mask=attention_mask, **kwargs)

    monkeypatch.setattr(type(model), "forward", picky)
    decoder = Decoder(model, 0)
    assert (decoder.shares, decoder.ready_masks) == (True, False)

    @functools.wraps(real)
    def counting(self, *args, attention_mask, **kwargs):
        out = real(self, *args, attention_mask=attention_mask, **kwargs)
        out.logits[..., 0] += (attention_mask[:, 8] == 0).sum() * 100  # no hole may be after the first tokens
        return out

    monkeypatch.setattr(type(model), "forward", counting)
    decoder = Decoder(model, 0)
    assert (decoder.shares, decoder.ready_masks) == (False, False)


def test_a_model_that_does_not_use_the_cache_is_refused(shared_engine, monkeypatch):
    model = shared_engine._session.decoder.model
    real = type(model).forward

    @functools.wraps(real)
    def forgetful(self, *args, attention_mask, position_ids=None, **kwargs):
        return real(self, kwargs["input_ids"], use_cache=False)

    monkeypatch.setattr(type(model), "forward", forgetful)
    with pytest.raises(UserError, match="LlamaForCausalLM does not continue a padded batch"):
        Decoder(model, 0)


def test_models_with_a_sliding_window_are_not_given_masks_with_holes(tmp_path):
    from transformers import MistralConfig, MistralForCausalLM

    config = MistralConfig(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=8, max_position_embeddings=64,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    decoder = Decoder(model, 0)
    assert not decoder.shares
    prompt = list(range(3, 23))
    found = []

    def step(logits, rows, t):
        ids = logits.argmax(-1).numpy()
        found.append(ids)
        return ids, np.full(len(rows), t < 5)

    decoder.generate([prompt, prompt[:15], prompt], 6, step)
    with torch.inference_mode():
        expected = model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, eos_token_id=None)
    assert [int(ids[0]) for ids in found] == [int(ids[2]) for ids in found] == expected[0, 20:].tolist()


def test_the_event_loop_stays_free_while_the_model_works(new_engine):
    engine = new_engine()

    async def run():
        ticks = 0
        async with engine.lease(None) as policy:
            task = asyncio.create_task(policy.complete([ask("x", seed=i, max_new_tokens=150) for i in range(8)]))
            while not task.done():
                await asyncio.sleep(0.002)
                ticks += 1
            await task
        return ticks

    assert asyncio.run(run()) > 3


def test_cancelling_one_of_several_requests_leaves_the_others(new_engine):
    """Agents of one policy wait in turn; one that gives up must not interrupt whoever is being served."""
    engine = new_engine()

    async def run():
        async with engine.lease(None) as policy:
            first = asyncio.create_task(policy.complete([ask("x", seed=1, max_new_tokens=300)]))
            waiting = asyncio.create_task(policy.complete([ask("y", seed=2)]))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            return await first

    assert asyncio.run(run())[0].completion_ids


def test_one_engine_serves_several_event_loops(new_engine):
    engine = new_engine()

    async def both():
        async def one():
            async with engine.lease(None) as policy:
                return await policy.complete([ask("x")])

        return await asyncio.gather(one(), one())

    assert asyncio.run(both()) == asyncio.run(both())


def test_a_cancelled_request_stops_at_its_next_token_and_the_engine_goes_on(new_engine):
    engine = new_engine()

    async def run():
        async with engine.lease(None) as policy:
            slow = asyncio.create_task(policy.complete([ask("x", seed=i, max_new_tokens=450) for i in range(32)]))
            while len(passes) < 2 and not slow.done():
                await asyncio.sleep(0)
            slow.cancel()
            answer = await policy.complete([ask("y", temperature=0.0, max_new_tokens=1)])
            assert slow.cancelled()
            return answer

    passes = []
    with engine._session.decoder.model.register_forward_hook(lambda *_: passes.append(1)):
        answer = asyncio.run(run())
    assert len(answer[0].completion_ids) == 1
    assert len(passes) < 450
