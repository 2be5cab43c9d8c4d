"""What a server answers to who should not ask, asks too much or never ends asking."""

import asyncio
import json
import socket

import pytest
from wire import HELLO, PATIENCE_SECONDS, SHORT, Answers, Server, attacked, said

from coevo.endpoint import serve
from coevo.endpoint.limits import Limits
from coevo.records import Completion


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "localhost.evil.example:{port}", "192.0.2.7",
        "evil@127.0.0.1", "127.0.0.1:80:80", "[::1", "", "[2001:db8::1]:{port}",
    ],
)  # fmt: skip
def test_a_server_on_loopback_answers_to_no_foreign_name(host):
    async def test(server):
        return await server.status(server.post(host=host.format(port=server.port)))

    policy = Answers()
    status, headers, answer = attacked(test, policy)
    assert (status, answer["error"]["code"]) == (421, "wrong_host")
    assert "access-control-allow-origin" not in headers
    assert policy.asked == 1  # the honest one afterwards


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:{port}", "127.0.0.1", "[::1]:{port}", "127.0.0.1:1"])
def test_a_server_on_loopback_answers_to_its_own_names_through_any_port(host):
    async def test(server):
        return await server.status(server.post(host=host.format(port=server.port)))

    assert attacked(test)[0] == 200


def test_a_name_that_is_allowed_is_answered_to():
    allowed = {"options": {"names": ("Models.example.org",)}}
    assert said(host="models.example.org:443", **allowed)[0] == 200
    assert said(host="example.org", **allowed)[0] == 421


def test_a_server_that_others_reach_answers_to_every_number_and_its_own_name_and_no_other():
    everywhere = {"options": {"host": "0.0.0.0"}}
    assert said(host="192.0.2.7", **everywhere)[0] == 200
    assert said(host=socket.gethostname(), **everywhere)[0] == 200
    assert said(host="evil.example", **everywhere)[0] == 421


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "", "file://", "http://{host}.a"]
)
def test_no_web_page_may_ask(origin):
    async def test(server):
        given = origin.format(host=server.host)
        asked = await server.status(server.post(origin=given))
        # What a browser asks before a request that is not simple.
        before = await server.status(
            server.head("OPTIONS", origin=given, access_control_request_method="POST", authorization=None)
        )
        return asked, before

    policy = Answers()
    for status, headers, answer in attacked(test, policy, key=""):
        assert (status, answer["error"]["code"]) == (403, "wrong_origin")
        assert not [name for name in headers if name.startswith("access-control")]
    assert policy.asked == 1


def test_a_page_of_the_server_itself_may_ask():
    async def test(server):
        return await server.status(server.post(origin=f"http://{server.host}"))

    assert attacked(test)[0] == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/nothing", "//v1/models", "/health/../v1"])
@pytest.mark.parametrize("key", [None, "Bearer", "Bearer x", "Basic {key}", "{key}", "Bearer {key}x", "Bearer \xe9"])
def test_without_the_key_no_path_says_anything(path, key):
    async def test(server):
        given = None if key is None else key.format(key=server.endpoint.key)
        return await server.status(server.head("GET", path, authorization=given, content_type=None))

    assert attacked(test)[0] == 401


@pytest.mark.parametrize(
    "kind",
    [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", "application/jsonx"],
)
def test_what_a_form_can_send_is_not_taken(kind):
    policy = Answers()
    status, _, answer = said(policy, content_type=kind, options={"key": ""})
    assert (status, answer["error"]["code"]) == (415, "unsupported_media_type")
    assert policy.asked == 1


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_is_taken(kind):
    assert said(content_type=kind)[0] == 200


@pytest.mark.parametrize("name", ["host", "origin", "authorization", "content_type"])
def test_a_header_that_decides_is_there_once(name):
    async def test(server):
        right = {
            "host": server.host, "origin": f"http://{server.host}", "authorization": f"Bearer {server.endpoint.key}",
            "content_type": "application/json",
        }  # fmt: skip
        return await server.status(server.post(**{name: [right[name], "evil.example"]}))

    assert attacked(test)[0] == 400


def test_a_body_that_says_it_is_too_large_is_refused_before_it_comes():
    async def test(server):
        return await server.status(server.head(content_length=101))

    status, _, answer = attacked(test, limits=Limits(body_bytes=100, rest_seconds=SHORT))
    assert (status, answer["error"]["code"]) == (413, "request_too_large")


def test_a_number_of_bytes_with_thousands_of_digits_is_too_large_as_well():
    async def test(server):
        async with server.wire() as wire:
            await wire.send(server.head(content_length="9" * 5000))
            return (await wire.answer())[0]

    assert attacked(test) in (400, 413)


def test_a_body_that_comes_in_chunks_is_counted_as_it_comes():
    async def test(server):
        async with server.wire() as wire:
            await wire.send(server.head(transfer_encoding="chunked"))
            for _ in range(11):
                await wire.send(b"a\r\n" + b" " * 10 + b"\r\n")
            return await wire.answer()

    assert attacked(test, limits=Limits(body_bytes=100))[0] == 413


def test_all_bodies_together_are_bounded():
    async def test(server):
        async with server.wire() as first, server.wire() as second:
            await first.send(server.head(content_length=100) + b" " * 99)
            await second.send(server.head(content_length=100) + b" " * 99)
            done, _ = await asyncio.wait(
                [asyncio.ensure_future(wire.answer()) for wire in (first, second)], return_when="FIRST_COMPLETED"
            )
            return done.pop().result()

    status, headers, _ = attacked(test, limits=Limits(held_bytes=150))
    assert (status, headers["retry-after"]) == (503, "1")


@pytest.mark.parametrize("sent", ["", "POST /v1/chat", "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"])
def test_headers_that_never_end_are_not_waited_for(sent):
    async def test(server):
        async with server.wire() as wire:
            await wire.send(sent.encode())
            status, _, _ = await wire.answer()
            return status, await wire.closed()

    assert attacked(test, limits=Limits(head_seconds=SHORT)) == (408, b"")


def test_headers_that_come_drop_by_drop_gain_no_time():
    async def test(server):
        async with server.wire() as wire:
            await wire.send(b"GET /v1/models HTTP/1.1\r\n")
            answer = asyncio.ensure_future(wire.answer())
            while not answer.done():
                await wire.send(b"a: b\r\n")
                await asyncio.sleep(SHORT / 10)
            return (await answer)[0]

    assert attacked(test, limits=Limits(head_seconds=SHORT)) == 408


def test_a_second_request_whose_headers_never_end_is_not_waited_for_either():
    async def test(server):
        while True:
            async with server.wire() as wire:
                await wire.send(server.post() + b"POST /v1/chat")
                if (await wire.answer())[0] == 200:
                    return (await wire.answer())[0], await wire.closed()

    assert attacked(test, limits=Limits(head_seconds=SHORT)) == (408, b"")


def test_a_body_that_never_ends_is_not_waited_for():
    async def test(server):
        async with server.wire() as wire:
            await wire.send(server.head(content_length=100) + b"{")
            return (await wire.answer())[0], await wire.closed()

    assert attacked(test, limits=Limits(body_seconds=SHORT, rest_seconds=SHORT)) == (408, b"")


def test_after_a_refusal_nobody_goes_on_sending_for_ever():
    async def test(server):
        async with server.wire() as wire:
            await wire.send(server.head(transfer_encoding="chunked", authorization="Bearer x"))
            assert (await wire.answer())[0] == 401
            closed = asyncio.ensure_future(wire.closed())
            while not closed.done():
                await wire.send(b"a\r\n" + b" " * 10 + b"\r\n")
                await asyncio.sleep(SHORT / 10)

    attacked(test, limits=Limits(rest_seconds=SHORT))


def test_a_client_that_does_not_read_its_answer_loses_its_connection():
    class Long(Answers):
        async def complete(self, requests):
            text = "x" * (1 << 24) if len(requests) == 2 else "x"
            return [Completion(text, (1,), (2,), "stop") for _ in requests]

    async def test(server):
        # One connection is all there is, so another one is answered only when the first is gone.
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
        writer.write(server.post(json.dumps({"n": 2, **json.loads(HELLO)}).encode()))
        await server.honest()
        writer.close()

    attacked(test, Long(), limits=Limits(rest_seconds=SHORT, connections=1))


def test_two_hundred_requests_at_once_are_answered_or_told_to_come_again():
    async def run(limit):
        gate = asyncio.Event()
        policy = Answers(gate)
        policy.expected = min(limit, 200)
        async with serve(policy, limits=Limits(requests=limit)) as endpoint:
            server = Server(endpoint)
            asked = [asyncio.ensure_future(server.status(server.post())) for _ in range(200)]
            refused = 200 - policy.expected
            await policy.all_in.wait()
            while sum(one.done() for one in asked) < refused:
                await asyncio.sleep(0.01)
            gate.set()
            return await asyncio.gather(*asked), policy.asked

    answers, asked = asyncio.run(asyncio.wait_for(run(150), PATIENCE_SECONDS))
    assert (len([1 for status, _, _ in answers if status == 200]), asked) == (150, 150)
    refused = [(status, h["retry-after"], h["x-should-retry"]) for status, h, _ in answers if status != 200]
    assert refused == [(503, "1", "true")] * 50
    answers, asked = asyncio.run(asyncio.wait_for(run(1000), PATIENCE_SECONDS))
    assert ({status for status, _, _ in answers}, asked) == ({200}, 200)


def test_a_request_that_is_refused_gives_its_place_back():
    async def test(server):
        found = [await server.status(server.post(b"{")) for _ in range(3)]
        async with server.wire() as wire:
            await wire.send(server.head(content_length=10))
        return [status for status, _, _ in found]

    assert attacked(test, limits=Limits(requests=2)) == [400] * 3


def test_one_connection_too_many_is_told_and_closed():
    async def test(server):
        async with server.wire() as first, server.wire() as second, server.wire() as third:
            await first.send(server.post())
            assert (await first.answer())[0] == 200
            await second.send(server.post())
            assert (await second.answer())[0] == 200
            return (await third.answer())[0], await third.closed()

    assert attacked(test, limits=Limits(connections=2)) == (503, b"")


def test_an_answer_that_takes_too_long_is_given_up():
    async def run():
        policy = Answers(asyncio.Event())
        async with serve(policy, limits=Limits(answer_seconds=SHORT)) as endpoint:
            server = Server(endpoint)
            return await server.status(server.post())

    status, _, answer = asyncio.run(asyncio.wait_for(run(), PATIENCE_SECONDS))
    assert (status, answer["error"]["code"]) == (504, "answer_timeout")


def test_refused_requests_take_no_seeds_from_those_that_are_answered():
    class Seeds(Answers):
        seeds = ()

        async def complete(self, requests):
            self.seeds = (*self.seeds, *(request.seed for request in requests))
            return await super().complete(requests)

    async def spoilt(server):
        for changed in ({"host": "a.b"}, {"authorization": None}, {"content_type": None}, {"body": b'{"messages": 1}'}):
            assert (await server.status(server.post(**changed)))[0] >= 400

    async def nothing(server):
        pass

    seeds = []
    for test in (spoilt, nothing):
        policy = Seeds()
        attacked(test, policy)
        seeds.append(policy.seeds)
    assert seeds[0] == seeds[1]
