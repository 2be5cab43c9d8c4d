"""Whatever a server does ends in the documented way, within its time, with the ledger right and the key kept."""

import time

import pytest
from loop_kit import rollouts

from coevo.errors import RequestFailedError, RunError, UserError
from coevo.runs.folder import RunFolder
from tests.openai_engine.api_kit import KEY, ask, engine_on, failure_of, files_with, request, run_on
from tests.openai_engine.api_server import MODEL, cut, fails, hangs, raw, says, serving, together

TOO_LONG = "This model's maximum context length is 100 tokens, however you requested 320 tokens"
BROKEN_ONCE = {
    "a server error": (fails(500), 0),
    "a bad gateway": (fails(502), 0),
    "an overloaded server": (fails(503), 0),
    "too many requests": (fails(429, headers={"Retry-After": "0"}), 0),
    "a cut stream": (cut, 0),
    "an error in a success": (raw(b'{"error": {"message": "upstream"}}'), 0),
}
MISSHAPEN_ONCE = {
    "junk in place of JSON": (raw(b"<html>junk</html>"), 0),
    "junk that is called text": (raw(b"\xff\xfe\x00", "text/html"), 0),
    "JSON of another kind": (raw(b"[1, 2]"), 0),
    "an answer without choices": (raw(b'{"choices": []}'), 0),
    "a choice of another schema": (says(choices=[{"message": {"content": 7}}]), 1),
    "a choice that is none": (says(choices=["text"]), 1),
}


@pytest.mark.parametrize("name", [*BROKEN_ONCE, *MISSHAPEN_ONCE])
def test_what_fails_once_is_asked_again_and_answered(name):
    act, billed = {**BROKEN_ONCE, **MISSHAPEN_ONCE}[name]
    with serving(act, says("2.5", usage=(11, 4))) as server:
        engine = engine_on(server)
        (answer,) = ask(engine)
    spent = engine.spending
    assert (answer.text, answer.finish_reason) == ("2.5", "stop")
    assert (spent.requests, spent.answers, spent.retries, spent.given_up) == (2, 1, 1, 0)
    # An answer that cannot be used is paid for all the same, where the server says what it counted.
    assert (spent.prompt_tokens, spent.completion_tokens) == (11 + 10 * billed, 4 + 3 * billed)
    assert answer.tokens == (spent.prompt_tokens, spent.completion_tokens)


@pytest.mark.parametrize("name", BROKEN_ONCE)
def test_what_goes_on_failing_is_given_up_after_the_retries_and_no_sooner(name):
    with serving(always=BROKEN_ONCE[name][0]) as server:
        engine = engine_on(server)
        failure = failure_of(ask, engine)
    assert type(failure) is RequestFailedError
    assert "asked 3 times, openai.retries = 2" in str(failure)
    assert "\n" not in str(failure)
    spent = engine.spending
    assert (spent.requests, spent.answers, spent.retries, spent.given_up) == (3, 0, 2, 1)
    assert (spent.prompt_tokens, spent.completion_tokens, spent.cost) == (0, 0, 0.0)


@pytest.mark.parametrize("name", MISSHAPEN_ONCE)
def test_what_has_the_same_wrong_form_twice_is_not_paid_for_again(name):
    act, billed = MISSHAPEN_ONCE[name]
    with serving(always=act) as server:
        engine = engine_on(server, retries=5)
        failure = failure_of(ask, engine)
    assert type(failure) is RequestFailedError
    assert "asked 2 times; the same again is not worth more" in str(failure)
    spent = engine.spending
    assert (spent.requests, spent.answers, spent.retries, spent.given_up) == (2, 0, 1, 1)
    assert (spent.prompt_tokens, spent.completion_tokens) == (20 * billed, 6 * billed)


def test_a_form_that_changes_is_asked_for_as_often_as_any_failure():
    with serving(raw(b"junk"), raw(b"[1]"), raw(b"junk"), says("2.5")) as server:
        (answer,) = ask(engine_on(server, retries=3))
    assert answer.text == "2.5"


def test_a_server_that_hangs_is_left_when_the_budget_is_used_up():
    with serving(always=hangs) as server:
        engine = engine_on(server, budget_seconds=5.0)  # enough for a slow machine to send it
        failure = failure_of(ask, engine)
    assert type(failure) is RequestFailedError
    assert str(failure) == "no answer in time; openai.budget_seconds = 5 leaves no time for another try"
    assert (engine.spending.requests, engine.spending.given_up) == (1, 1)


def test_one_budget_holds_for_all_tries_of_a_request_together():
    failed = [{"message": {"content": ""}, "finish_reason": "error"}]
    with serving(always=says(after=1.5, choices=failed)) as server:
        engine = engine_on(server, budget_seconds=5.0, retries=50)
        failure = failure_of(ask, engine)
    assert type(failure) is RequestFailedError
    assert "openai.budget_seconds = 5 leaves no time for another try" in str(failure)
    assert 1 <= engine.spending.requests <= 4
    # The last may have been cut off; the others told what they cost.
    assert engine.spending.requests - engine.spending.prompt_tokens / 10 in (0, 1)


def test_the_wait_that_a_server_asks_for_is_kept_by_all_requests():
    with serving(fails(429, "slow down", {"Retry-After": "1"})) as server:
        engine = engine_on(server, concurrency=1)
        assert len(ask(engine, request(), request(), request())) == 3
    times = [at for at, _ in server.asked]
    assert min(times[1:]) - times[0] >= 1.0
    assert (engine.spending.requests, engine.spending.retries) == (4, 1)


def test_requests_already_waiting_are_held_up_by_anothers_too_many_requests():
    refused = []

    def refuse(handler, body):
        refused.append(time.monotonic())
        fails(429, "slow down", {"retry-after-ms": "600"})(handler, body)

    with serving(together(2, refuse), always=together(2, says(after=0.2))) as server:
        ask(engine_on(server, concurrency=2), *[request() for _ in range(5)])
    times = sorted(at for at, _ in server.asked)
    # Two were on their way when the server said so; nobody asked for the time that it wants.
    assert all(at - refused[0] >= 0.6 for at in times[2:])


def test_a_wait_beyond_the_budget_is_not_waited_for():
    with serving(always=fails(429, "slow down", {"Retry-After": "3600"})) as server:
        engine = engine_on(server, budget_seconds=60.0)
        failure = failure_of(ask, engine)
        later = failure_of(ask, engine)
    assert str(failure) == (
        "429: slow down (wait 3600 s); openai.budget_seconds = 60 leaves no time for another try"
    )  # fmt: skip
    assert "the server told another request to wait" in str(later)
    assert len(server.asked) == 1


@pytest.mark.parametrize("told", ["1e308", "99999999999", "-3", "nan", "inf", "soon", "Tue, 99 Foo 2999 99:99:99 GMT"])
def test_an_absurd_wait_is_not_obeyed(told):
    with serving(fails(429, "slow down", {"Retry-After": told})) as server:
        assert ask(engine_on(server, budget_seconds=60.0))[0].text == "1.0"
    assert len(server.asked) == 2


def test_a_wait_may_be_given_as_a_date():
    from email.utils import formatdate

    from coevo_openai.failures import asked_to_wait

    assert 3000.0 < asked_to_wait({"retry-after": formatdate(time.time() + 3600, usegmt=True)}) <= 3600.0
    assert asked_to_wait({"retry-after": formatdate(time.time() - 60, usegmt=True)}) == 0.0
    assert asked_to_wait({"retry-after": "soon"}) is None
    assert asked_to_wait({"retry-after": "nan"}) is None
    assert asked_to_wait({}) is None


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_not_accepted_ends_the_run_at_once_and_is_not_shown(status):
    with serving(always=fails(status, "Incorrect API key provided: {key}")) as server:
        failure = failure_of(ask, engine_on(server))
    assert type(failure) is RunError
    assert str(failure) == (
        f"{server.url}: the server does not accept the key ({status}): Incorrect API key provided: ***; "
        "check the key in the environment variable OPENAI_API_KEY"
    )
    assert len(server.asked) == 1


def test_an_account_without_money_ends_the_run_at_once():
    with serving(always=fails(429, "You exceeded your current quota", code="insufficient_quota")) as server:
        failure = failure_of(ask, engine_on(server))
    assert type(failure) is RunError
    assert "nothing left to spend (429)" in str(failure)
    assert len(server.asked) == 1


def test_an_unknown_model_ends_the_run_with_the_models_that_there_are():
    with serving(always=fails(404, "The model does not exist")) as server:
        failure = failure_of(ask, engine_on(server))
    assert type(failure) is RunError
    assert f"answers 404 for model {MODEL!r}" in str(failure)
    assert str(failure).endswith(f"it offers {MODEL}; choose with --model")
    assert len(server.asked) == 1


def test_without_a_list_of_models_the_address_is_suspected():
    with serving(always=fails(404), models=fails(404)) as server:
        failure = failure_of(ask, engine_on(server))
    assert str(failure).endswith("ends as it should, usually in /v1")


@pytest.mark.parametrize(
    "refusal",
    [fails(400, TOO_LONG), fails(400, "no", code="context_length_exceeded"),
     fails(400, "the request exceeds the available context size, try increasing it", type="exceed_context_size_error")],
)  # fmt: skip
def test_a_prompt_that_is_too_long_is_its_own_rollouts_failure(refusal):
    with serving(refusal) as server:
        engine = engine_on(server)
        long, fitting = ask(engine, request("long"), request("short"))
    assert sorted([long.finish_reason, fitting.finish_reason]) == ["context_overflow", "stop"]
    assert (engine.spending.requests, engine.spending.retries, engine.spending.given_up) == (2, 0, 0)


def test_another_refusal_is_its_own_rollouts_failure_and_is_not_repeated():
    with serving(always=fails(400, "unsupported value: temperature")) as server:
        engine = engine_on(server)
        failure = failure_of(ask, engine)
    assert type(failure) is RequestFailedError
    assert "the server refuses the request (400): " in str(failure)
    assert "unsupported value: temperature" in str(failure)
    assert (len(server.asked), engine.spending.given_up) == (1, 1)


def test_a_server_that_counts_no_tokens_has_them_estimated():
    with serving(says("12345678", usage=None)) as server:
        engine = engine_on(server)
        (answer,) = ask(engine, request("x" * 40))
    assert answer.tokens == (13, 2)  # four bytes a token, three tokens a message
    assert (engine.spending.prompt_tokens, engine.spending.completion_tokens) == (13, 2)
    assert engine.spending.estimated == 1


def test_an_error_of_our_own_is_not_taken_for_the_servers(monkeypatch):
    monkeypatch.setattr("coevo_openai.asking.reply_of", lambda *_: 1 / 0)
    with serving() as server, pytest.raises(ZeroDivisionError):
        ask(engine_on(server))


# At start


def test_a_server_that_is_not_there_is_named_before_a_run_begins(in_empty_folder):
    with serving() as server:
        pass
    with pytest.raises(UserError, match=r"no server can be reached at http://127\.0\.0\.1:\d+/v1 .*base_url=URL"):
        run_on(server)
    assert files_with("") == []


def test_a_key_that_is_not_accepted_at_start_makes_no_run(in_empty_folder):
    with serving(models=fails(401, "bad key {key}")) as server, pytest.raises(UserError) as failure:
        run_on(server)
    assert "check the key in the environment variable OPENAI_API_KEY" in str(failure.value)
    assert KEY not in str(failure.value)
    assert server.asked == []
    assert files_with("") == []


@pytest.mark.parametrize("key", ["sk-0123456789abcdef\nx", "sk-0123456789abcdefé", "two words of a key"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(in_empty_folder, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with serving() as server, pytest.raises(UserError, match=r"variable OPENAI_API_KEY holds .* no key") as failure:
        run_on(server)
    assert key.split()[0] not in str(failure.value)
    assert files_with("") == []


@pytest.mark.parametrize("models", [fails(403), fails(404), fails(500), raw(b"junk"), raw(b'{"data": 3}')])
def test_a_server_that_keeps_its_models_to_itself_is_used_all_the_same(models):
    with serving(models=models) as server:
        assert ask(engine_on(server))[0].text == "1.0"


# In runs

LOSES_ONE = {
    "500": (fails(500), "500: "),
    "junk": (raw(b"{"), "the answer is no JSON"),
    "cut": (cut, "RemoteProtocolError"),
    "429": (fails(429, "slow", {"Retry-After": "99"}), "429: "),
    "400": (fails(400, "no such field {key}"), "no such field ***"),
    "schema": (raw(b'{"choices": 3}'), "the answer holds no choices"),
}


@pytest.mark.parametrize("name", LOSES_ONE)
def test_a_failed_request_costs_its_own_rollout_and_never_a_reward(in_empty_folder, name):
    act, told = LOSES_ONE[name]
    # Two batches of six; the last question of the second is asked twice and fails both times.
    with serving(*[says(usage=(7, 2))] * 11, act, act, always=says(usage=(7, 2))) as server:
        summary = run_on(server, openai={"concurrency": 1, "extra_body": {"user": "me"}})
    assert summary["status"] == "finished"
    assert summary["statuses"] == {"engine_error": 1, "ok": 11}
    # A request that was asked in vain is a call.
    assert (summary["calls"], summary["prompt_tokens"], summary["completion_tokens"]) == (12, 77, 22)
    (lost,) = [r for r in rollouts("a") if r["status"] == "engine_error"]
    assert lost["return"] is None
    assert told in lost["artifacts"]["message"]
    # The loop does not try again what the engine has given up.
    assert len(server.asked) == (13 if name in ("500", "junk", "cut", "schema") else 12)
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert files_with(KEY) == []


def test_a_run_that_hangs_ends_within_the_budgets_and_can_be_resumed(in_empty_folder, monkeypatch):
    with serving(always=hangs) as server:
        failure = failure_of(run_on, server, "a", openai={"budget_seconds": 1.0})
        assert type(failure) is RunError
        assert "every rollout of the batch failed with 'engine_error'" in str(failure)
        assert "go on with: coevo resume" in str(failure)
        assert len(server.asked) <= 6
        server.always = says()
        import loop_kit

        import coevo_openai
        from coevo.app.launch import resume

        summary = resume("a", plugins=loop_kit.plugins(coevo_openai))
    assert (summary["status"], summary["statuses"]) == ("finished", {"ok": 12})


def test_a_key_that_expires_ends_the_run_resumably(in_empty_folder):
    with serving(*[says()] * 6, always=fails(401, "expired {key}")) as server:
        failure = failure_of(run_on, server, "a")
        assert type(failure) is RunError
        assert "variable OPENAI_API_KEY; go on with: coevo resume" in str(failure)
        assert KEY not in str(failure)
    assert RunFolder.find("a").journal.history().stop["reason"] == "failed"
    assert len(rollouts("a")) == 6
    assert files_with(KEY) == []


def test_a_key_that_a_server_says_back_in_an_answer_is_not_written_down(in_empty_folder):
    with serving(always=says(f"1.0 {KEY}")) as server:
        run_on(server, task="letters")
    assert {r["trajectory"]["steps"][0]["text"] for r in rollouts("a")} == {"1.0 ***"}
    assert files_with(KEY) == []
