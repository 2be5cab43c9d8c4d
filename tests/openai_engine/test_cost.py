"""The cap on the cost is never passed, whatever the server counts and whatever becomes of a request."""

import asyncio
from contextlib import suppress

import pytest
from loop_kit import rollouts

from coevo.errors import RequestFailedError, RunError
from coevo.records import Sampling
from coevo.runs.folder import RunFolder
from coevo_openai.spending import Prices, Purse, Usage
from tests.openai_engine.api_kit import ask, engine_on, failure_of, request, run_on
from tests.openai_engine.api_server import cut, fails, hangs, raw, says, serving, together

DEAR = {"prompt_price": 1e6, "completion_price": 2e6}  # 1 for a token of a prompt, 2 for one of an answer
MESSAGES = ({"role": "user", "content": "x" * 68},)  # with the frames of a chat template, 100 tokens at most


def priced(text="x" * 68, new_tokens=50):
    """A request that costs 200 at most."""
    return request(text, sampling=Sampling(max_new_tokens=new_tokens))


def test_what_an_answer_costs_is_counted_from_its_usage():
    with serving(says(usage=(30, 7))) as server:
        engine = engine_on(server, **DEAR)
        ask(engine, priced())
    assert engine.spending.cost == 30 + 2 * 7
    assert engine.spending.possible == 0.0


def test_a_request_that_could_pass_the_cap_is_not_sent():
    with serving(always=says(usage=(60, 10))) as server:
        engine = engine_on(server, concurrency=1, max_cost=280.0, **DEAR)
        ask(engine, priced(), priced())
        failure = failure_of(ask, engine, priced())
    assert type(failure) is RunError
    assert str(failure) == (
        "engine 'openai' has spent 160 of openai.max_cost = 280; the next request may cost 200 and was not sent. "
        "A resumed run may spend as much again"
    )
    assert len(server.asked) == 2


def test_requests_under_way_count_at_their_most_and_others_wait_for_what_they_really_cost():
    with serving(always=together(2, says(usage=(60, 10)))) as server:
        engine = engine_on(server, concurrency=8, max_cost=440.0, **DEAR)
        ask(engine, *[priced() for _ in range(4)])
    # Two fit at their most, 400; each turns out to cost 80, which makes room for more.
    assert server.most_at_once == 2
    assert engine.spending.cost == 320.0
    assert engine.spending.requests == 4


@pytest.mark.parametrize("act", [cut, raw(b"junk"), says(usage=None), hangs], ids=["cut", "junk", "no usage", "hangs"])
def test_what_a_server_may_have_billed_without_a_word_counts_against_the_cap(act):
    with serving(act) as server:
        # Long enough for a request to arrive on any machine; only the server that hangs is waited for so long.
        engine = engine_on(server, retries=0, budget_seconds=5.0 if act is hangs else 300.0, max_cost=350.0, **DEAR)
        with suppress(RequestFailedError):
            ask(engine, priced())
        failure = failure_of(ask, engine, priced())
    assert engine.spending.cost + engine.spending.possible == 200.0
    assert type(failure) is RunError
    assert "more for requests that were cut off" in str(failure)
    assert len(server.asked) == 1


@pytest.mark.parametrize("act", [fails(500), fails(429, headers={"Retry-After": "0"}), fails(400, "no")])
def test_what_a_server_refuses_costs_nothing(act):
    with serving(act) as server:
        engine = engine_on(server, retries=0, max_cost=350.0, **DEAR)
        failure = failure_of(ask, engine, priced())
        assert type(failure) is RequestFailedError
        ask(engine, priced())
    assert engine.spending.possible == 0.0


def test_a_request_that_is_cancelled_may_have_been_billed():
    async def go():
        async with engine.lease(None) as policy:
            waiting = asyncio.ensure_future(policy.complete([priced()]))
            while not server.asked:
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    with serving(hangs) as server:
        engine = engine_on(server, max_cost=350.0, **DEAR)
        asyncio.run(go())
        server.closing.set()
    assert engine.spending.possible == 200.0
    assert engine._asker.purse._under_way == 0


def test_what_a_server_adds_to_a_prompt_is_learned_from_the_first_answer():
    purse = Purse(Prices(1e6, 2e6), 1000.0)
    assert purse.most(MESSAGES, 50) == 200.0
    purse.settle(asyncio.run(purse.reserve(MESSAGES, 50, asyncio.Event())), Usage(150, 10), MESSAGES)
    assert purse.most(MESSAGES, 50) == 250.0


def test_a_run_ends_at_its_cap_and_a_resumed_one_may_spend_as_much_again(in_empty_folder):
    import loop_kit

    import coevo_openai
    from coevo.app.launch import resume

    options = {"concurrency": 1, "max_cost": 500.0, **DEAR}
    with serving(always=says(usage=(60, 2))) as server:
        failure = failure_of(lambda: run_on(server, openai=options, rollouts={"chunk": 1}))
        assert type(failure) is RunError
        assert "of openai.max_cost = 500" in str(failure)
        assert str(failure).endswith("go on with: coevo resume a")
        before = len(server.asked)
        assert before == 7  # at 64 each there is no room for an eighth, which may cost 84
        summary = resume("a", plugins=loop_kit.plugins(coevo_openai))
    assert summary["statuses"] == {"ok": 12}
    # At most what was under way when the cap was met is asked twice.
    assert 12 <= len(server.asked) <= 13
    assert len(rollouts("a")) == 12
    assert RunFolder.find("a").journal.history().ledger.tokens == 12 * 62


def test_the_journal_has_what_every_batch_cost_and_show_its_sum(in_empty_folder, coevo):
    with serving(fails(500), always=says(usage=(60, 10))) as server:
        summary = run_on(server, openai={"prompt_price": 2.0, "completion_price": 8.0})
    batches = RunFolder.find("a").journal.history().batches
    each = 6 * (60 * 2.0 + 10 * 8.0) / 1e6
    assert [line["metrics"]["cost"] for line in batches] == pytest.approx([each, each])
    assert [line["metrics"]["requests"] for line in batches] == [7.0, 6.0]
    assert [line["metrics"].get("retries") for line in batches] == [1.0, None]
    assert summary["cost"] == pytest.approx(2 * each)
    assert "12 calls, 840 tokens, cost 0.0024, " in coevo("show", "a")[1]


def test_without_prices_there_is_no_cost(in_empty_folder, coevo):
    with serving() as server:
        assert run_on(server)["cost"] is None
    assert "cost" not in coevo("show", "a")[1]
