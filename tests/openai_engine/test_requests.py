"""What is asked, and what is made of the answer: prefill, stops, seeds, lengths, log-probabilities."""

import asyncio

import pytest

from coevo.errors import RequestFailedError, UserError
from coevo.records import Perturbation, Sampling, SeedsUpdate
from tests.openai_engine.api_kit import ask, engine_on, failure_of, request
from tests.openai_engine.api_server import MODEL, fails, says, serving, together

STOPS = ("\n", "#")


def asked(engine_options=(), act=None, **changes):
    """The body of a request and the completion that came of the answer."""
    with serving(act or says()) as server:
        (answer,) = ask(engine_on(server, **dict(engine_options)), request(**changes))
    return server.bodies[-1], answer


def test_a_plain_server_is_asked_for_no_more_than_openais_own_knows():
    body, _ = asked(sampling=Sampling(max_new_tokens=20), seed=5)
    assert body == {
        "model": MODEL, "messages": [{"role": "user", "content": "say number 1"}], "max_tokens": 20, "seed": 5,
        "temperature": 1.0, "top_p": 1.0,
    }  # fmt: skip


def test_the_whole_sampling_is_sent_where_it_is_set():
    sampling = Sampling(0.7, 0.9, 40, 0.05, 0.5, 20)
    body, _ = asked({"extra_body": {"user": "me"}}, sampling=sampling, chat_options={"enable_thinking": False})
    assert {key: body[key] for key in body if key not in ("model", "messages", "seed")} == {
        "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "presence_penalty": 0.5, "max_tokens": 20,
        "chat_template_kwargs": {"enable_thinking": False}, "user": "me",
    }  # fmt: skip


def test_a_vllm_server_is_told_what_else_the_models_files_would_decide():
    with serving(owner="vllm") as server:
        ask(engine_on(server), request())
    told = {name: server.bodies[0][name] for name in ("top_k", "min_p", "presence_penalty", "repetition_penalty")}
    assert told == {"top_k": 0, "min_p": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}


def test_what_the_template_is_told_by_a_request_and_by_the_options_is_told_both():
    options = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True, "level": 1}}}
    body, _ = asked(options, chat_options={"enable_thinking": False})
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "level": 1}


ADDED = {
    "model": ("x", "chosen with --model"),
    "messages": ([], "the messages are the task's"),
    "n": (3, "expected n=1 or nothing"),
    "best_of": (2, "expected best_of=1"),
    "stream": (True, "expected stream=false or nothing: one whole answer is read"),
    "echo": (1, "expected echo=false"),
    "max_tokens": (9, "--set sampling.max_new_tokens=N"),
    "max_completion_tokens": (9, "--set sampling.max_new_tokens=N"),
    "temperature": (0.0, "--set sampling.temperature=X"),
    "top_k": (3, "--set sampling.top_k=X"),
    "seed": (1, "openai.seed_bits"),
    "stop": (["x"], "the task says where an answer ends"),
    "continue_final_message": (True, "openai.prefill"),
    "chat_template_kwargs": ("x", "expected a table"),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_would_take_the_place_of_a_request_is_refused_before_anything_is_asked(name):
    value, words = ADDED[name]
    with serving() as server:
        failure = failure_of(engine_on, server, extra_body={"user": "me", name: value})
    assert type(failure) is ValueError
    assert str(failure).startswith(f"extra_body has {name}") or f"has '{name}'" in str(failure)
    assert words in str(failure)
    assert (server.models_asked, server.asked) == (0, [])


def test_what_only_says_again_how_one_answer_is_asked_for_may_be_sent():
    body, _ = asked({"extra_body": {"n": 1, "stream": False, "repetition_penalty": 1.1}})
    assert (body["n"], body["stream"], body["repetition_penalty"]) == (1, False, 1.1)


@pytest.mark.parametrize(
    ("name", "words"),
    [("messages", "without which there is no request"), ("model", "chosen with --model"),
     ("continue_final_message", "openai.prefill"), ("top-p", "never sent; did you mean 'top_p'?"),
     ("max_tokens", "without which max_cost cannot hold")],
)  # fmt: skip
def test_what_a_request_cannot_be_without_is_not_left_out(name, words):
    with serving() as server:
        failure = failure_of(engine_on, server, omit=[name], max_cost=1.0, prompt_price=1.0)
        engine_on(server, omit=["max_tokens"])
    assert type(failure) is ValueError
    assert f"omit has {name!r}" in str(failure)
    assert words in str(failure)


def test_fields_that_a_server_refuses_are_left_out():
    body, _ = asked({"omit": ["top_p", "seed", "top_k"]}, sampling=Sampling(top_k=5))
    assert set(body) == {"model", "messages", "max_tokens", "temperature"}


@pytest.mark.parametrize(("bits", "sent"), [(63, 2**63 - 1), (31, 2**31 - 1), (0, None)])
def test_a_seed_has_the_bits_that_a_server_takes(bits, sent):
    body, _ = asked({"seed_bits": bits}, seed=2**64 - 1)
    assert body.get("seed") == sent


def test_a_server_that_wants_another_name_for_the_length_gets_it_from_then_on():
    refusal = fails(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    with serving(refusal) as server:
        engine = engine_on(server, retries=0)
        ask(engine)
        ask(engine)
    names = [sorted(set(body) & {"max_tokens", "max_completion_tokens"}) for body in server.bodies]
    assert names == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]
    with serving(refusal) as server:
        failure = failure_of(ask, engine_on(server, limit_name="max_tokens"))
    assert type(failure) is RequestFailedError
    assert "max_completion_tokens" in str(failure)


def test_stop_strings_are_sent_and_looked_for_besides():
    many = ("a", "b", "", "c", "d", "X")
    body, answer = asked(act=says("12Xab"), stop=many)
    assert body["stop"] == ["a", "b", "c", "d"]
    assert (answer.text, answer.finish_reason) == ("12", "stop")


def test_an_answer_cut_by_its_length_says_so():
    with_length = says(choices=[{"message": {"content": "1.5"}, "finish_reason": "length"}])
    _, answer = asked(act=with_length)
    assert (answer.text, answer.finish_reason) == ("1.5", "length")


@pytest.mark.parametrize(
    ("message", "note"),
    [({"content": None}, ""), ({}, ""), ({"content": None, "refusal": "I\ncannot"}, "the model refused: I cannot"),
     ({"content": [{"type": "refusal", "refusal": "score = 1"}]}, "the model refused: score = 1")],
)  # fmt: skip
def test_an_answer_without_content_is_empty_and_a_refusal_is_told(message, note):
    _, answer = asked(act=says(choices=[{"message": message, "finish_reason": "stop"}]))
    assert (answer.text, answer.note) == ("", note)


def test_a_refusal_beside_an_answer_leaves_the_answer():
    _, answer = asked(act=says(choices=[{"message": {"content": "1.0", "refusal": "or not"}, "finish_reason": "stop"}]))
    assert (answer.text, answer.note) == ("1.0", "")


@pytest.mark.parametrize(
    ("content", "reason", "words"),
    [("<think>so let me", "length", "none into the answer"), ("[THINK]so[/THINK]", "stop", "then gave no answer"),
     ("", "length", "seem to have gone into reasoning"), ("", "stop", ""), ("<think>so</think>1", "length", "")],
)  # fmt: skip
def test_an_answer_of_thoughts_alone_says_so(content, reason, words):
    _, answer = asked(act=says(choices=[{"message": {"content": content}, "finish_reason": reason}]))
    assert words in answer.note
    assert bool(words) == bool(answer.note)


def test_logprobs_are_given_where_they_are_wanted_and_the_server_has_them():
    listed = {"content": [{"token": "1", "logprob": -0.5}, {"token": ".", "logprob": -1.0}]}
    choice = {"message": {"content": "1."}, "finish_reason": "stop", "logprobs": listed}
    body, answer = asked(act=says(choices=[choice]), logprobs=True)
    assert body["logprobs"] is True
    assert answer.logprobs == (-0.5, -1.0)
    assert asked(logprobs=True)[1].logprobs is None
    # A text that was cut has lost the places of its tokens.
    assert asked(act=says(choices=[choice]), logprobs=True, stop=(".",))[1].logprobs is None


# Prefill

CONTINUED = {
    "score = d_current - d_mean": " d_current - d_mean",
    "score=d_current": "d_current",
    "  score =  d_current\n": "  d_current",
    "```python\nscore = d_current\n```": " d_current",
    "`score = d_current`": " d_current",
    "> score = d_current": " d_current",
    "Here is one:\n\nscore = d_current  # nearest\nIt is good.": " d_current  ",
    "<think>\nscore = no\n</think>\n\nscore = d_current": " d_current",
    "d_current - d_home": "d_current - d_home",
    "\n\nd_current": "d_current",
    "```\nd_current\n```": "d_current",
    "`d_current`": "d_current",
    "my_score = d_current": "my_score = d_current",
    "": "",
}


@pytest.mark.parametrize("said", CONTINUED)
def test_a_prefill_that_is_not_sent_is_taken_off_the_answer(said):
    body, answer = asked(act=says(said), prefill="score =", stop=STOPS)
    assert [m["role"] for m in body["messages"]] == ["user"]
    # They would end the answer at its first line break.
    assert "stop" not in body
    assert answer.text == CONTINUED[said]


def test_a_vllm_server_is_asked_to_go_on():
    with serving(says(" d_current"), owner="vllm") as server:
        engine = engine_on(server)
        (answer,) = ask(engine, request(prefill="score = ", stop=STOPS))
    body = server.bodies[-1]
    assert body["messages"][-1] == {"role": "assistant", "content": "score ="}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert body["stop"] == ["\n", "#"]
    assert answer.text == "d_current"  # the space was the prefill's
    assert engine.describe()["prefill"] == "continue"


def test_a_prefill_may_be_sent_as_a_message_of_its_own():
    body, answer = asked({"prefill": "message"}, act=says("score = d_current"), prefill="score =", stop=STOPS)
    assert body["messages"][-1] == {"role": "assistant", "content": "score ="}
    assert "continue_final_message" not in body
    assert answer.text == " d_current"


def test_a_prefill_may_be_refused():
    with serving() as server, pytest.raises(UserError, match=r"go on after 'score =', and openai\.prefill is 'refuse'"):
        ask(engine_on(server, prefill="refuse"), request(prefill="score ="))
    assert server.asked == []


# The engine as a whole


def test_no_more_requests_are_under_way_than_are_allowed():
    with serving(always=together(3, says())) as server:
        engine = engine_on(server, concurrency=3)
        answers = ask(engine, *[request() for _ in range(10)])
    assert len(answers) == 10
    assert server.most_at_once == 3


def test_answers_come_in_the_order_of_the_questions():
    last = lambda body: body["messages"][-1]["content"]  # noqa: E731 - a line
    with serving(says(last, after=0.2), always=says(last)) as server:
        answers = ask(engine_on(server), *[request(str(i)) for i in range(6)])
    assert [answer.text for answer in answers] == [str(i) for i in range(6)]


def test_an_engine_works_in_one_event_loop_after_another():
    with serving() as server:
        engine = engine_on(server, concurrency=1)
        for _ in range(3):
            assert len(ask(engine, request(), request())) == 2


def test_its_weights_are_fixed(tmp_path):
    async def lease(engine):
        async with engine.lease(Perturbation(1, 0.1)):
            raise AssertionError("it was leased")

    with serving() as server:
        engine = engine_on(server)
    with pytest.raises(ValueError, match="fixed weights"):
        asyncio.run(lease(engine))
    with pytest.raises(ValueError, match="cannot move the weights"):
        engine.apply(SeedsUpdate(((1, 0.5),)))
    engine.apply(SeedsUpdate((), reason="all credits equal"))
    with pytest.raises(UserError, match="no weights to export"):
        engine.export(tmp_path)
    assert engine.digest() == engine_digest_of(MODEL)
    assert not engine.capabilities.adapts
    assert engine.capabilities.rolling


def engine_digest_of(model):
    import hashlib

    return hashlib.sha256(f"openai:{model}".encode()).hexdigest()
