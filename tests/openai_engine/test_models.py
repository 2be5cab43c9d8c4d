"""The list of models that is asked for at start: whatever a server makes of it, the start ends and nothing acts."""

import asyncio
import json
import time

import pytest

from coevo.errors import RunError, UserError
from tests.openai_engine.api_kit import ask, engine_on, failure_of
from tests.openai_engine.api_server import MODEL, answers, fails, raw, serving
from tests.openai_engine.test_odd_replies import endless

PATIENCE = 300.0


def drips(head):
    """Bytes that come one by one, for as long as somebody reads them: no wait between two of them is long."""

    def act(handler, body):
        handler.close_connection = True
        handler.wfile.write(head)
        stop = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < stop:
                handler.wfile.write(b" ")
                time.sleep(0.02)
        except ConnectionError:
            handler.server.left_alone = True

    return act


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_list_that_drips_is_left_when_its_time_is_over(monkeypatch, head):
    monkeypatch.setattr("coevo_openai.server.QUICK_SECONDS", 0.5)
    with serving(models=drips(head)) as server:
        assert ask(engine_on(server))[0].text == "1.0"
    assert server.left_alone


@pytest.mark.parametrize(
    "models",
    [
        raw(b'{"data": ' + b"[" * 200_000),
        raw(b'{"data": [' + b'{"id": ' * 200_000),
        raw(b'{"data": [{"id": ' + b"9" * 6000 + b"}]}"),
        raw(b" " * (17 << 20)),
        raw(b'{"data": [7, null, {"id": {}}]}'),
        raw(b"[]"),
        endless(200),
        endless(500),
        answers(200, b"junk", Content_Encoding="br"),
        answers(200, b"junk", Content_Encoding="gzip"),
    ],
    ids=["deep", "deeper", "long", "large", "odd", "none", "endless", "endless error", "br", "gzip"],
)
def test_an_odd_list_is_as_good_as_none(models):
    with serving(models=models) as server:
        engine = engine_on(server)
        assert ask(engine)[0].text == "1.0"
    assert engine.describe()["prefill"] == "drop"


def test_names_of_models_do_not_act_and_are_not_endless():
    names = ["\x1b[2J\u202e", "x" * 10_000, *map(str, range(40))]
    models = raw(json.dumps({"data": [{"id": name, "owned_by": "\x1b"} for name in names]}).encode())
    with serving(always=fails(404, "no \x1b]0;a\x07"), models=models) as server:
        failure = failure_of(ask, engine_on(server))
    assert type(failure) is RunError
    assert f"answers 404 for model {MODEL!r}: no \\x1b]0;a\\x07; it offers \\x1b[2J\\u202e, xxx" in str(failure)
    assert str(failure).endswith("17 and 22 more; choose with --model")
    assert str(failure).isprintable()
    assert len(str(failure)) < 1000


@pytest.mark.parametrize(
    ("headers", "words"),
    [({"Location": "/v1/models"}, "to where they came from"), ({}, "does not say where"),
     ({"Location": "https://me:secret@x.example/v1/models"}, "sends requests on to https://***@x.example/v1;")],
)  # fmt: skip
def test_a_list_that_is_elsewhere_says_where(headers, words):
    with serving(models=answers(301, b"", **headers)) as server:
        failure = failure_of(engine_on, server)
    assert type(failure) is UserError
    assert words in str(failure)
    assert "secret" not in str(failure)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [(304, {}, "the server answers 304, which is no answer to a request of this kind; see that --set openai.base_url"),
     (101, {"Connection": "Upgrade", "Upgrade": "x"}, "(the server wants to speak another protocol (101), which was")],
)  # fmt: skip
def test_a_list_in_place_of_which_something_else_comes_says_what(status, headers, words):
    with serving(models=answers(status, b"", **headers)) as server:
        failure = failure_of(engine_on, server)
    assert type(failure) is UserError
    assert words in str(failure)


def test_an_engine_is_made_within_a_running_event_loop_too():
    async def made():
        return engine_on(server)

    with serving(owner="vllm") as server:
        assert asyncio.run(made()).describe()["prefill"] == "continue"
    assert server.models_asked == 1
