"""An endpoint answers as the policy does, and says in one line what it does not do."""

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager

import httpx
import openai
import pytest

from coevo.endpoint import serve
from coevo.endpoint.errors import CallLimitError
from coevo.endpoint.limits import Limits
from coevo.engines.prompts import TEMPLATE_CALL
from coevo.errors import MissingExtraError, RunError, UserError
from coevo.records import Completion, Sampling

HELLO = [{"role": "user", "content": "hello"}]


class Echo:
    """Answers with what it was asked, so that a test sees what came through."""

    id = "echo-1"

    def __init__(self, answer=None):
        self.asked, self._answer = [], answer

    async def complete(self, requests):
        self.asked += requests
        if self._answer is not None:
            return [await self._answer(request) for request in requests]
        return [
            Completion(f"<{r.messages[-1]['content']}>", (1, 2, 3), (4, 5), "stop", (-0.5, -0.25)) for r in requests
        ]


def served(test, policy=None, **options):
    """Run `test(client, endpoint)` against an endpoint."""

    async def run():
        async with (
            serve(policy or Echo(), **options) as endpoint,
            httpx.AsyncClient(
                base_url=endpoint.base_url, headers={"authorization": f"Bearer {endpoint.key}"}, timeout=180
            ) as client,
        ):
            return await test(client, endpoint)

    return asyncio.run(run())


def post(body, policy=None, content=None, **options):
    """(status, JSON) of one chat request; without a model it is the endpoint's."""

    async def test(client, endpoint):
        data = content if content is not None else json.dumps({"messages": HELLO, **body})
        answer = await client.post("/chat/completions", content=data, headers={"content-type": "application/json"})
        return answer.status_code, answer.json()

    return served(test, policy, **options)


def test_an_answer_has_the_form_that_clients_read():
    async def test(client, endpoint):
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.key) as own:
            answer = await own.chat.completions.create(model=endpoint.model, messages=HELLO, logprobs=True)
            models = await own.models.list()
            return answer, models

    answer, models = served(test)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", "<hello>", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (3, 2, 5)
    assert answer.system_fingerprint == "echo-1"
    assert [(t.token, t.logprob) for t in choice.logprobs.content] == [("token_id:4", -0.5), ("token_id:5", -0.25)]
    assert [model.id for model in models.data] == ["coevo"]


def test_every_parameter_reaches_the_policy():
    policy = Echo()
    body = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.1, "presence_penalty": 1.5, "max_tokens": 12,
        "stop": ["a", "b"], "seed": 99, "chat_template_kwargs": {"enable_thinking": False}, "user": "me",
        "continue_final_message": True, "frequency_penalty": 0, "tools": None,
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "so it"},
        ],
    }  # fmt: skip
    assert post(body, policy)[0] == 200
    (request,) = policy.asked
    assert request.messages == ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "a\nb"})
    assert (request.prefill, request.stop, request.seed) == ("so it", ("a", "b"), 99)
    assert request.sampling == Sampling(0.5, 0.9, 7, 0.1, 1.5, 12)
    assert request.chat_options == {"enable_thinking": False}


def test_what_is_left_open_is_the_endpoints_own():
    policy, own = Echo(), Sampling(temperature=0.3, top_p=0.8, max_new_tokens=40)
    post({"top_p": 1.0, "max_completion_tokens": 5, "stop": "x", "top_k": -1}, policy, sampling=own)
    assert policy.asked[0].sampling == Sampling(temperature=0.3, top_p=1.0, max_new_tokens=5)
    assert policy.asked[0].stop == ("x",)


def test_choices_and_requests_draw_for_themselves_and_the_same_again():
    def seeds(**body):
        policy = Echo()

        async def test(client, endpoint):
            for _ in range(2):
                await client.post("/chat/completions", json={"messages": HELLO, "n": 3, **body})

        served(test, policy)
        return [request.seed for request in policy.asked]

    assert len(set(seeds())) == 6
    assert seeds() == seeds()
    assert seeds(seed=5)[:3] == seeds(seed=5)[3:]
    assert len(set(seeds(seed=5))) == len(set(seeds(seed=0))) == len(set(seeds(seed=-1))) == 3
    assert 0 not in seeds(seed=0)


def test_a_stream_says_the_same_in_pieces():
    async def test(client, endpoint):
        async with openai.AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.key) as own:
            stream = await own.chat.completions.create(
                model=endpoint.model, messages=HELLO, n=2, stream=True, stream_options={"include_usage": True}
            )
            return [chunk async for chunk in stream]

    chunks = served(test)
    texts = {0: "", 1: ""}
    for chunk in chunks[:-1]:
        (choice,) = chunk.choices
        texts[choice.index] += choice.delta.content or ""
    assert texts == {0: "<hello>", 1: "<hello>"}
    assert [c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason] == ["stop", "stop"]
    assert chunks[-1].usage.completion_tokens == 4


def test_a_system_message_of_the_endpoint_comes_before_that_of_a_request():
    policy = Echo()
    post({}, policy, system="Learned.")
    post({"messages": [{"role": "system", "content": "Own."}, *HELLO]}, policy, system="Learned.")
    assert policy.asked[0].messages == ({"role": "system", "content": "Learned."}, *HELLO)
    assert policy.asked[1].messages == ({"role": "system", "content": "Learned.\n\nOwn."}, *HELLO)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"temperature": -1}, "temperature got -1: input should be greater than or equal to 0"),
        ({"top_p": 0}, "top_p got 0: input should be greater than 0"),
        ({"top_k": 10**30}, "top_k got 1000000000000000000000000000000: input should be less than 2147483648"),
        ({"max_tokens": 1 << 31}, "max_tokens got 2147483648: input should be less than 2147483648"),
        ({"max_tokens": 0}, "max_tokens got 0: input should be greater than or equal to 1"),
        ({"n": "many"}, "n got 'many': input should be a valid integer"),
        ({"stop": 3}, "stop got 3: input should be a valid string"),
        ({"stop": ["a", ""]}, "stop got '': a stop string has at least one character"),
        ({"messages": []}, "messages got []: list should have at least 1 item"),
        ({"messages": "hi"}, "messages got 'hi': input should be a valid list"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role got 'tool': expected 'system', 'user'"),
        ({"messages": [{"role": "user"}]}, "messages.0.content is not text, and nothing else is supported"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content is not text"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]}, "messages.0.tool_calls is not supported"),
        ({"tools": [{"type": "function"}]}, "'tools' is not supported by this endpoint; leave it out"),
        ({"response_format": {"type": "json_object"}}, "'response_format' is not supported"),
        ({"temprature": 1}, "unknown field 'temprature'; did you mean 'temperature'?"),
        ({"continue_final_message": True}, "continue_final_message needs a last message of the assistant"),
        ({"max_tokens": True}, "max_tokens got True: input should be a valid integer"),
        ({"max_tokens": "2"}, "max_tokens got '2': input should be a valid integer"),
        ({"max_tokens": 2.0}, "max_tokens got 2.0: input should be a valid integer"),
        ({"temperature": True}, "temperature got True: input should be a valid number"),
        ({"stream": "yes"}, "stream got 'yes': input should be a valid boolean"),
        ({"logprobs": 1}, "logprobs got 1: input should be a valid boolean"),
        ({"add_generation_prompt": False}, "add_generation_prompt false needs continue_final_message true"),
    ],
)  # fmt: skip
def test_a_mistake_is_a_400_in_one_line(body, said):
    status, answer = post(body)
    assert status == 400
    assert answer["error"]["message"].startswith(said)
    assert "\n" not in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe", b"[1]", b"[" * 100_000, '{"messages": []}'.encode("utf-16")]
)
def test_what_is_no_json_object_is_a_400(content):
    status, answer = post({}, content=content)
    assert status == 400
    assert answer["error"]["message"].startswith("the body is no JSON")


def test_another_model_is_a_404_and_so_is_another_path():
    assert post({"model": "gpt"})[0] == 404
    assert post({"model": "gpt"})[1]["error"]["code"] == "model_not_found"

    async def test(client, endpoint):
        return [
            (await client.get("/models/coevo")).status_code,
            (await client.get("/models/gpt")).status_code,
            (await client.post("/embeddings", json={})).status_code,
            (await client.get("/chat/completions")).status_code,
            (await client.post("/chat/completions/", json={})).status_code,
            (await client.get("/models/")).status_code,
        ]

    assert served(test) == [200, 404, 404, 405, 404, 404]


def test_who_does_not_know_the_key_is_refused():
    async def test(client, endpoint):
        with_other = [
            await client.get("/models", headers={"authorization": value})
            for value in ("", "Bearer x", f"Basic {endpoint.key}", "Bearer é".encode())
        ]
        return [answer.status_code for answer in with_other]

    assert served(test) == [401] * 4


def test_keys_are_random_and_not_shown():
    async def test(client, endpoint):
        return endpoint

    first, second = served(test), served(test)
    assert first.key != second.key
    assert len(first.key) >= 32
    assert first.key not in repr(first)


def test_a_key_can_be_given_or_left_out():
    async def test(client, endpoint):
        return (await client.get("/models", headers={"authorization": ""})).status_code

    assert served(test, key="") == 200
    assert served(test, key="mine") == 401


SURROGATES = {
    "content": {"messages": [{"role": "user", "content": "a\ud800b"}]},
    "stop": {"stop": ["\udfff"]},
    "field": {"\ud800": 1},
    "template": {"chat_template_kwargs": {"a": ["\ud800"]}},
    "model": {"model": "\ud800"},
}


@pytest.mark.parametrize("name", sorted(TEMPLATE_CALL))
def test_a_request_brings_no_template_of_its_own(name):
    policy = Echo()
    status, answer = post({"chat_template_kwargs": {"enable_thinking": False, name: "{{ 'x' * 200000000 }}"}}, policy)
    field = f"chat_template_kwargs.{name}"
    assert status == 400
    assert answer["error"] == {
        "message": f"{field} is no option of the chat template; leave it out", "type": "invalid_request_error",
        "param": field, "code": "unsupported",
    }  # fmt: skip
    assert policy.asked == []


@pytest.mark.parametrize("body", SURROGATES.values(), ids=SURROGATES)
def test_half_of_a_surrogate_pair_is_no_text(body):
    policy = Echo()
    status, answer = post(body, policy)
    assert (status, answer["error"]["message"].partition(" in a text")[0]) == (
        400, "the body has half of a surrogate pair",
    )  # fmt: skip
    assert policy.asked == []
    assert post({"messages": [{"role": "user", "content": "\U0001f600"}]})[0] == 200  # two halves are a letter


def test_a_body_that_is_too_large_is_a_413():
    status, answer = post({}, content=b" " * (Limits().body_bytes + 1))
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


def failing(error):
    async def answer(request):
        raise error

    return Echo(answer)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (RuntimeError("lost\nthe device"), 500, "the engine failed: RuntimeError: lost the device"),
        (RunError("the update made weights NaN"), 500, "the update made weights NaN"),
        (CallLimitError("the episode asks for call 3"), 403, "the episode asks for call 3"),
        (UserError("the chat template refuses the messages"), 400, "the chat template refuses the messages"),
    ],
)
def test_an_engine_that_fails_is_told_without_a_traceback(error, status, said, capfd):
    found, answer = post({}, failing(error))
    assert (found, answer["error"]["message"]) == (status, said)
    assert capfd.readouterr() == ("", "")


def test_a_prompt_that_does_not_fit_has_the_code_that_clients_know():
    async def overflow(request):
        return Completion("", (1,) * 900, (), "context_overflow")

    status, answer = post({}, Echo(overflow))
    assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
    assert "900 tokens" in answer["error"]["message"]


def test_logprobs_of_an_engine_that_gives_none_are_refused():
    async def plain(request):
        return Completion("x", (1,), (2,), "stop")

    assert post({"logprobs": True}, Echo(plain))[0] == 400
    assert post({"logprobs": False}, Echo(plain))[0] == 200


def test_requests_that_come_at_once_are_answered_at_once():
    async def test(client, endpoint):
        together = asyncio.Event()
        policy.waiting = 0

        async def answer(request):
            policy.waiting += 1
            if policy.waiting == 8:
                together.set()
            await together.wait()
            return Completion(request.messages[-1]["content"], (1,), (2,), "stop")

        policy._answer = answer
        bodies = [{"messages": [{"role": "user", "content": str(i)}]} for i in range(8)]
        answers = await asyncio.gather(*(client.post("/chat/completions", json=body) for body in bodies))
        return [a.json()["choices"][0]["message"]["content"] for a in answers]

    policy = Echo()
    assert served(test, policy) == [str(i) for i in range(8)]


@asynccontextmanager
async def stuck():
    """A policy that never answers, and when it was asked and given up."""
    asked, given_up = asyncio.Event(), asyncio.Event()

    async def answer(request):
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_up.set()

    yield Echo(answer), asked, given_up


def test_when_it_ends_what_is_asked_is_refused_at_once_and_nobody_listens():
    async def run():
        async with stuck() as (policy, asked, given_up), httpx.AsyncClient(timeout=180) as client:
            async with serve(policy) as endpoint:
                url = f"{endpoint.base_url}/chat/completions"
                headers = {"authorization": f"Bearer {endpoint.key}"}
                request = asyncio.create_task(client.post(url, headers=headers, json={"messages": HELLO}))
                await asked.wait()
            answer = await request
            assert given_up.is_set()
            with pytest.raises(httpx.ConnectError):
                await client.post(url, headers=headers, json={"messages": HELLO})
            return answer

    answer = asyncio.run(asyncio.wait_for(run(), 20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "lease_ended")
    assert answer.headers["x-should-retry"] == "false"


def test_nobody_works_for_a_client_that_has_gone():
    async def run():
        async with stuck() as (policy, asked, given_up), serve(policy, key="") as endpoint:
            async with httpx.AsyncClient(timeout=180) as client:
                request = asyncio.create_task(
                    client.post(f"{endpoint.base_url}/chat/completions", json={"messages": HELLO})
                )
                await asked.wait()
                request.cancel()
            await asyncio.wait_for(given_up.wait(), 20)

    asyncio.run(run())


def test_a_port_that_is_taken_is_an_error_for_the_user():
    async def test(client, endpoint):
        port = int(endpoint.base_url.split(":")[2].removesuffix("/v1"))
        async with serve(Echo(), port=port):
            pass

    with pytest.raises(UserError, match=r"cannot listen on '127\.0\.0\.1', port \d+: Address already in use; give"):
        served(test)


def test_without_uvicorn_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "uvicorn" else object())
    with pytest.raises(MissingExtraError, match=r"'uvicorn'.*pip install 'coevo\[serve\]'"):
        post({})


def test_a_package_that_starlette_or_uvicorn_lacks_is_named_with_the_extra_too(monkeypatch):
    monkeypatch.delitem(sys.modules, "coevo.endpoint.server")
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(MissingExtraError, match=r"'uvicorn'.*pip install 'coevo\[serve\]'"):
        post({})


def test_it_leaves_the_signals_of_the_run_alone():
    def handlers():
        return signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def run():
        before = handlers()
        async with serve(Echo()):
            return before, handlers()

    before, during = asyncio.run(run())
    assert before == during
