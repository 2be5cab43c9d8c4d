"""What is no HTTP, no JSON or no conversation is refused in words, and nothing of it is taken for another request."""

import json

import pytest
from wire import Answers, attacked, said

from coevo.endpoint.body import DEEPEST, MOST


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("levels", [DEEPEST + 1, 900, 90_000])
def test_json_that_is_nested_too_deep_is_a_400(opening, levels):
    closing = b"]" if opening == b"[" else b"}"
    body = b'{"messages": [], "metadata": ' + opening * levels + b"1" + closing * levels + b"}"
    status, _, answer = said(body=body)
    assert (status, answer["error"]["message"]) == (
        400, f"the body is no JSON that can be read: it is nested deeper than {DEEPEST} levels",
    )  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        b'"messages": [' + b"1," * MOST + b"1]", b'"messages": [], "stop": [' + b'"\\"",' * MOST + b'"a"]',
        b'"messages": [], ' + b",".join(b'"%d": 1' % i for i in range(MOST + 1)),
    ],
    ids=["messages", "stops", "fields"],
)  # fmt: skip
def test_more_values_than_a_conversation_has_are_refused_before_they_are_made(values):
    status, _, answer = said(body=b"{" + values + b"}")
    assert (status, answer["error"]["message"].partition(";")[0]) == (400, "the body has more than 100,000 values")


def test_a_text_may_have_any_letters():
    text = '\\",[{' * MOST
    assert said(body=json.dumps({"messages": [{"role": "user", "content": text}]}).encode())[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "a"}], "model": "x" * 100_000}, {"x" * 100_000: 1},
        {"messages": [{"role": "x" * 100_000, "content": "a"}]},
        {"messages": [{"role": "user", "content": "a", "x" * 100_000: 1}]},
    ],
)  # fmt: skip
def test_an_answer_does_not_repeat_megabytes(body):
    status, _, answer = said(body=json.dumps(body).encode())
    assert status in (400, 404)
    assert len(json.dumps(answer)) < 2000


def test_of_a_request_with_two_lengths_nothing_is_taken_for_a_second_one():
    async def test(server):
        inner = server.post()
        async with server.wire() as wire:
            await wire.send(server.head(content_length=len(inner), transfer_encoding="chunked") + b"0\r\n\r\n" + inner)
            return (await wire.answer())[0], await wire.closed()

    policy = Answers()
    assert attacked(test, policy) == (400, b"")
    assert policy.asked == 1


def test_a_request_in_the_body_of_a_refused_one_is_none():
    async def test(server):
        async with server.wire() as wire:
            await wire.send(server.post(server.post(), authorization=None) + server.head("GET", "/v1/models"))
            return [(await wire.answer())[0] for _ in range(2)]

    policy = Answers()
    assert attacked(test, policy) == [401, 200]
    assert policy.asked == 1


@pytest.mark.parametrize(
    "path", ["http://evil.example/v1/models", "//evil.example/v1/models", "/v1/%2e%2e/v1/models", "/v1/models/%00", "*"]
)
def test_a_path_that_is_written_in_another_way_leads_nowhere(path):
    async def test(server):
        return await server.status(server.head("GET", path, content_type=None))

    assert attacked(test)[0] == 404


SPOILT = {
    "no HTTP": b"\x16\x03\x01\x00\xa5\x01",
    "HTTP/0.9": b"GET /v1/models\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a space": b"GET /v1/models HTTP/1.1\r\nhost : 127.0.0.1\r\n\r\n",
    "a length": b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: +1\r\n\r\n1",
    "two lengths": b"POST / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n12",
    "bytes": b"GET /\xff\xfe HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    "a header": b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\na: \x00\r\n\r\n",
}


@pytest.mark.parametrize("sent", SPOILT.values(), ids=SPOILT)
def test_what_is_no_http_is_refused_in_words_without_a_traceback(sent, capfd):
    async def test(server):
        async with server.wire() as wire:
            await wire.send(sent)
            status, _, body = await wire.answer()
            await wire.closed()
            return status, json.loads(body)["error"]["type"]

    assert attacked(test) == (400, "invalid_request_error")
    assert capfd.readouterr() == ("", "")


def test_headers_without_an_end_are_refused_for_their_size():
    async def test(server):
        async with server.wire() as wire:
            await wire.send(b"GET / HTTP/1.1\r\na: " + b"x" * 20_000)
            return (await wire.answer())[0]

    assert attacked(test) == 431


def test_what_is_spoilt_after_an_answer_prints_no_traceback(capfd):
    """uvicorn's own way to refuse fails once an answer has begun."""

    async def test(server):
        for key in (None, f"Bearer {server.endpoint.key}"):
            async with server.wire() as wire:
                await wire.send(server.head(transfer_encoding="chunked", authorization=key))
                if key is None:
                    assert (await wire.answer())[0] == 401
                await wire.send(b"no chunk\r\n")
                await wire.closed()
        async with server.wire() as wire:
            await wire.send(server.post() + b"\x00 is no request\r\n\r\n")
            return [(await wire.answer())[0] for _ in range(2)]

    assert attacked(test) == [200, 400]
    assert capfd.readouterr() == ("", "")


def test_a_socket_that_should_become_another_protocol_stays_what_it_is():
    async def test(server):
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec_websocket_key": "AAAAAAAAAAAAAAAAAAAAAA=="}
        right = await server.status(server.head("GET", "/v1/models", **upgrade))
        wrong = await server.status(server.head("GET", "/v1/models", authorization=None, **upgrade))
        return right[0], wrong[0]

    assert attacked(test) == (200, 401)
