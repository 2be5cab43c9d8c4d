"""Odd servers, each with what becomes of the rollout, how often it was asked, what is booked and what the user reads.

The first of twelve questions meets the odd reply as often as it asks; all others are answered. So a reply that is
asked for once too often, or too seldom, or that is charged to another question, shows in the counts of the run.
"""

import contextlib
import gzip
import json
import socket
import struct
import time
from dataclasses import dataclass
from email.utils import formatdate

import pytest
from loop_kit import rollouts

from coevo.errors import RunError
from coevo.runs.folder import RunFolder
from tests.openai_engine.api_kit import KEY, failure_of, files_with, run_on
from tests.openai_engine.api_server import MODEL, answers, chat, cut, fails, raw, says, serving

GOOD = (7, 2)
TOLD = (10, 3)
"""What a reply is billed that says so."""
NOTHING = (0, 0)
THRICE, TWICE = 3, 2


@dataclass(frozen=True)
class Odd:
    """A reply and its outcome: the rollout's status (`stops`: the run ends), requests, tokens, words of its message."""

    act: object
    status: str = "ok"
    requests: int = 1
    tokens: tuple[int, int] = TOLD
    words: str = ""


def choice(content="1.0", finish_reason="stop", **changes):
    """A reply with one choice."""
    return says(choices=[{"message": {"content": content, **changes}, "finish_reason": finish_reason}])


def used(**usage):
    """A good reply that counts oddly."""
    return body(200, {**chat("1.0", None), **({"usage": usage} if usage else {})})


def lost(act, words, requests=THRICE, tokens=NOTHING):
    return Odd(act, "engine_error", requests, tokens, words)


def silent(act, words, tokens=TOLD):
    return Odd(act, "no_answer", 1, tokens, words)


def stops(act, words):
    return Odd(act, "stops", 1, NOTHING, words)


def reset(handler, body):
    """The connection breaks before a word."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def endless(status):
    """A body that goes on for as long as somebody reads it."""

    def act(handler, body):
        handler.send_response(status)
        handler.end_headers()
        handler.close_connection = True
        with contextlib.suppress(ConnectionError):
            while True:
                handler.wfile.write(b"x" * 65536)

    return act


def body(status, data, **headers):
    return answers(status, data if isinstance(data, bytes) else json.dumps(data).encode(), **headers)


HTML = b"<!DOCTYPE html><html><head><title>Sign in</title><style>x{}</style></head><body>to go on</body></html>"
STREAM = b'data: {"choices": [{"delta": {"content": "1.0"}}]}\n\ndata: [DONE]\n\n'
THOUGHT = [{"type": "thinking", "thinking": [{"type": "text", "text": "2.0 or 3.0"}]}, {"type": "text", "text": "1.0"}]
DEEP = b'{"choices": ' + b"[" * 200_000
WHOLE = json.dumps(chat("1.0")).encode()

ODD = {
    # failures that call themselves a success
    "finish_reason error": lost(
        choice("", "error"), "the server failed while it answered: it does not say why", tokens=(30, 9)
    ),
    "finish_reason error after a part of the answer": lost(
        choice("1.", "error"), "failed while it answered", tokens=(30, 9)
    ),
    "an error inside the choice": lost(
        says(choices=[{"message": {"content": ""}, "error": {"code": 502, "message": "Provider died"}}]),
        "the server failed while it answered: Provider died",
        tokens=(30, 9),
    ),
    "an aborted request": lost(choice("", "abort"), "failed while it answered", tokens=(30, 9)),
    "an abort as an object": lost(
        choice("", {"type": "abort", "message": "x"}), "failed while it answered", tokens=(30, 9)
    ),
    "a top-level error": lost(raw(b'{"error": {"message": "upstream"}}'), "failed while it answered: upstream"),
    "a top-level error that is a text": lost(raw(b'{"error": "upstream"}'), "failed while it answered: upstream"),
    "an object that is an error": lost(raw(b'{"object": "error", "message": "no", "code": 500}'), "500: no"),
    "an overflow inside a success": Odd(
        raw(b'{"error": {"message": "maximum context length is 8", "code": 400}}'),
        "context_overflow",
        1,
        NOTHING,
        "maximum context length is 8",
    ),
    "401 inside a success": Odd(
        raw(b'{"error": {"message": "bad key", "code": 401}}'),
        "stops",
        1,
        NOTHING,
        "does not accept the key (401): bad key; check the key in the environment variable OPENAI_API_KEY",
    ),
    # forms that cannot change
    "no choices": lost(says(choices=[]), "the answer holds no choices", TWICE, (20, 6)),
    "choices null": lost(says(choices=None), "the answer holds no choices", TWICE, (20, 6)),
    "a page of HTML": lost(raw(HTML, "text/html"), "the answer is no JSON: 'Sign in to go on'", TWICE),
    "a stream that nobody asked for": lost(
        raw(STREAM, "text/event-stream"),
        "a stream, which was not asked for; the server may leave that with --set openai.extra_body={stream=false}",
        TWICE,
    ),
    "the end of a stream at once": lost(raw(b"data: [DONE]\n\n", "text/event-stream"), "a stream", TWICE),
    "an empty body": lost(raw(b""), "the answer is empty", TWICE),
    "a list": lost(raw(b"[1, 2]"), "the answer is no JSON object", TWICE),
    "a number": lost(raw(b"7"), "the answer is no JSON object", TWICE),
    "deep JSON": lost(raw(DEEP), "the answer is no JSON", TWICE),
    "a huge body": lost(raw(b" " * (17 << 20)), "the answer has more than 16 MB", TWICE),
    "gzip that is none": lost(body(200, b"not gzip", Content_Encoding="gzip"), "cannot be unpacked", TWICE),
    "a message that is a text": lost(says(choices=[{"message": "1.0"}]), "message is no object", TWICE, (20, 6)),
    "a content that is a number": lost(choice(7), "content is a int", TWICE, (20, 6)),
    "a part without a text": lost(
        choice([{"type": "text", "text": {"words": "1.0"}}]), "a part of content has no text: '{", TWICE, (20, 6)
    ),
    "a part that is a picture": lost(
        choice([{"type": "image_url", "image_url": {"url": "x"}}]), "a part of content has no text", TWICE, (20, 6)
    ),
    "a part that is a number": lost(choice([1.0]), "a part of content has no text", TWICE, (20, 6)),
    "a part whose type is a list": lost(
        choice([{"type": ["text"], "text": "1.0"}]), "the type of a part of content is a list", TWICE, (20, 6)
    ),
    "a part whose type is an object": lost(
        choice([{"type": {}, "text": "1.0"}]), "the type of a part of content is a dict", TWICE, (20, 6)
    ),
    "more than so many tokens can be": lost(
        choice("1.0" + " " * (1 << 20)),
        "the answer has 1,048,579 characters, and sampling.max_new_tokens = ",
        TWICE,
        (20, 6),
    ),
    "another protocol": lost(
        body(101, b"", Connection="Upgrade", Upgrade="websocket"),
        "to speak another protocol (101), which was not asked",
    ),
    "a packing that was not asked for": lost(
        body(200, b"\x1b\x07\x00junk", Content_Encoding="br"),
        "the answer cannot be unpacked: it is packed as 'br', which was not asked for",
        TWICE,
    ),
    "zstd that is none": lost(body(200, b"junk", Content_Encoding="zstd"), "cannot be unpacked", TWICE),
    "a body that is cut": lost(cut, "RemoteProtocolError"),
    "a connection that is reset": lost(reset, "ReadError (asked 3 times"),
    # answers all the same
    "parts of thinking and text": Odd(choice(THOUGHT)),
    "parts that are texts": Odd(choice(["1", ".0"])),
    "a text within a part": Odd(choice([{"type": "text", "text": {"value": "1.0", "annotations": []}}])),
    "thoughts without a text": Odd(
        choice([{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "1.0"}])
    ),
    "thoughts beside the answer": Odd(choice("1.0", reasoning_content="2.0 or 3.0")),
    "Latin-1 that says so": Odd(
        raw(
            json.dumps(chat("1.0", user="\u00e9"), ensure_ascii=False).encode("latin-1"),
            "application/json; charset=iso-8859-1",
        )
    ),
    "Latin-1 that does not": Odd(raw(json.dumps(chat("1.0", user="\u00e9"), ensure_ascii=False).encode("latin-1"))),
    "a byte-order mark": Odd(raw(b"\xef\xbb\xbf" + WHOLE)),
    "a content type of text": Odd(raw(WHOLE, "text/plain")),
    "gzip": Odd(body(200, gzip.compress(WHOLE), Content_Encoding="gzip")),
    "several choices": Odd(
        says(choices=[{"index": 1, "message": {"content": "2.0"}}, {"index": 0, "message": {"content": "1.0"}}])
    ),
    "the same choice twice": Odd(says(choices=[{"index": 0, "message": {"content": "1.0"}}] * 2)),
    "a wrong index": Odd(says(choices=[{"index": 5, "message": {"content": "1.0"}}])),
    "another model": Odd(says(model="somebody/else")),
    "no ids": Odd(
        raw(
            json.dumps(
                {"choices": [{"message": {"content": "1.0"}}], "usage": {"prompt_tokens": 10, "completion_tokens": 3}}
            ).encode()
        )
    ),
    "finish_reason null": Odd(choice("1.0", None)),
    "finish_reason unknown": Odd(choice("1.0", "bored")),
    "finish_reason of ours": Odd(choice("1.0", "context_overflow")),
    "log-probabilities of another form": Odd(says(choices=[{"message": {"content": "1.0"}, "logprobs": [0.5]}])),
    "log-probabilities without end": Odd(
        raw(WHOLE.replace(b'"finish_reason"', b'"logprobs": {"content": [{"logprob": -Infinity}]}, "finish_reason"'))
    ),
    # answers without an answer
    "content null": silent(choice(None), ""),
    "a refusal, in which a task could find an answer": silent(choice(None, refusal="1.0"), "the model refused: 1.0"),
    "a part that refuses": silent(choice([{"type": "refusal", "refusal": "1.0"}]), "the model refused: 1.0"),
    "a refusal with what acts on a terminal": silent(
        choice("", refusal="\x1b[2Jno\u202e"), "refused: \\x1b[2Jno\\u202e"
    ),
    "filtered": silent(choice("", "content_filter"), ""),
    "a call of a tool": silent(choice(None, "tool_calls", tool_calls=[{"id": "1", "type": "function"}]), ""),
    "all tokens in reasoning": silent(
        choice("", "length", reasoning_content="so let me"),
        "all 3 tokens went into reasoning and none into the answer; give it more with --set sampling.max_new_tokens=N",
    ),
    "all tokens in reasoning that is only counted": silent(
        body(
            200,
            {
                "choices": [{"message": {"content": None}, "finish_reason": "length"}],
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 3,
                    "completion_tokens_details": {"reasoning_tokens": 3},
                },
            },
        ),
        "all 3 tokens went into reasoning",
    ),
    "reasoning and no answer": silent(
        choice("", reasoning="so"), "reasoned and then gave no answer (finish_reason 'stop')"
    ),
    # usage
    "no usage": Odd(used(), tokens=None),
    "usage below nothing": Odd(used(prompt_tokens=-5, completion_tokens=3), tokens=None),
    "usage beyond belief": Odd(used(prompt_tokens=10**30, completion_tokens=3), tokens=None),
    "usage in words": Odd(used(prompt_tokens="many", completion_tokens="few"), tokens=None),
    "usage that is a list": Odd(body(200, {**chat("1.0", None), "usage": [1]}), tokens=None),
    "usage of nothing": Odd(used(prompt_tokens=0, completion_tokens=0), tokens=None),
    "usage of thousands of digits": Odd(
        raw(WHOLE.replace(b'"prompt_tokens": 10', b'"prompt_tokens": ' + b"9" * 6000)), tokens=None
    ),
    "usage in texts": Odd(used(prompt_tokens="10", completion_tokens=3.0)),
    # errors of other forms
    "an error that is a text": lost(body(400, {"error": "no such thing"}), "(400): no such thing;", 1),
    "a detail": lost(body(400, {"detail": "not here"}), "(400): not here;", 1),
    "what FastAPI says": lost(
        body(422, {"detail": [{"loc": ["body", "top_k"], "msg": "too small", "type": "value_error"}]}),
        "(422): body.top_k: too small; a field that it does not know is left out with openai.omit",
        1,
    ),
    "a message": lost(body(400, {"message": "gone", "type": "X"}), "(400): gone;", 1),
    "an error in plain text": lost(body(500, b"worker died", Content_Type="text/plain"), "500: worker died"),
    "an error in HTML": lost(
        body(502, b"<html><body><h1>Bad Gateway</h1>nginx</body></html>"), "502: Bad Gateway nginx"
    ),
    "an error without a word": lost(body(500, b""), "500: no more words"),
    "an error that acts on a terminal": lost(
        fails(500, "\x1b]0;a\x07\x9b2J\u202e"), "500: \\x1b]0;a\\x07\\x9b2J\\u202e"
    ),
    "an error without end": lost(endless(500), "500: xxx"),
    "an error of thousands of digits": lost(
        raw(b'{"error": {"message": "no", "code": ' + b"9" * 6000 + b"}}"), "failed while it answered: no"
    ),
    "an error with a packing that was not asked for": lost(
        body(500, b"\x1bjunk", Content_Encoding="br"), "500: words packed as 'br', which was not asked for"
    ),
    "an error that is not gzip": lost(body(500, b"junk", Content_Encoding="gzip"), "cannot be unpacked", TWICE),
    "an error behind a router": lost(
        body(
            400,
            {
                "error": {
                    "message": "Provider returned error",
                    "metadata": {"raw": '{"error": {"message": "bad seed"}}'},
                }
            },
        ),
        "(400): Provider returned error: bad seed;",
        1,
    ),
    # waiting and elsewhere
    "429 with seconds": lost(fails(429, "slow", {"Retry-After": "0.01"}), "429: slow"),
    "429 with a date": lost(fails(429, "slow", {"Retry-After": formatdate(time.time() - 9, usegmt=True)}), "429: slow"),
    "429 with an absurd wait": lost(fails(429, "slow", {"Retry-After": "1e300"}), "429: slow"),
    "503": lost(fails(503, "busy"), "503: busy"),
    "529": lost(fails(529, "overloaded"), "529: overloaded"),
    "a redirect": Odd(
        body(307, b"", Location="https://elsewhere.example/v1/chat/completions"),
        "stops",
        1,
        NOTHING,
        "sends requests on to https://elsewhere.example/v1; if that is where to ask, say so with "
        "--set openai.base_url=URL",
    ),
    "a redirect to itself": stops(
        body(301, b"", Location="/v1/chat/completions"), "sends requests on (301) to where they came from, http://127"
    ),
    "a redirect to itself with a slash": stops(
        body(301, b"", Location="/v1/chat/completions/"), "to where they came from"
    ),
    "a redirect to nowhere": stops(
        body(302, b""), "sends requests on (302) and does not say where; see that --set openai.base_url=URL is"
    ),
    "304": stops(
        body(304, b""), "the server answers 304, which is no answer to a request of this kind; see that --set"
    ),
    "a redirect with a password": stops(
        body(307, b"", Location="https://me:secret@elsewhere.example/v1"), "on to https://***@elsewhere.example/v1;"
    ),
    "a redirect that is no address": stops(body(307, b"", Location="http://["), "on to http://[;"),
    "a redirect that acts on a terminal": stops(body(307, b"", Location="/\x9b2J"), "/\\x9b2J"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_reply_has_its_outcome(in_empty_folder, capsys, name):
    odd = ODD[name]
    with serving(*[odd.act] * odd.requests, always=says(usage=GOOD)) as server:
        options = {"concurrency": 1, "retries": 2, "prompt_price": 1e6, "completion_price": 1e6}  # a token costs 1
        if odd.status == "stops":
            failure = failure_of(run_on, server, task="letters", openai=options)
            assert type(failure) is RunError
            assert odd.words in str(failure)
        else:
            assert run_on(server, task="letters", openai=options)["status"] == "finished"
    heard = capsys.readouterr().err
    assert "\n" not in odd.words
    assert files_with(KEY) == []
    assert KEY not in heard
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert {body["model"] for body in server.bodies} == {MODEL}
    if odd.status == "stops":
        assert len(server.asked) == 1
        assert rollouts("a") == []
        return
    first, *others = rollouts("a")
    assert len(server.asked) == odd.requests + len(others) == odd.requests + 11
    assert {(r["status"], r["prompt_tokens"], r["completion_tokens"]) for r in others} == {("ok", *GOOD)}
    assert (first["status"], first["return"] is None) == (odd.status, odd.status != "ok")
    assert odd.words in first["artifacts"].get("message", "")
    noted = [line for line in heard.splitlines() if "openai" in line and "such rollouts are left out" not in line]
    assert len(noted) == (odd.status == "no_answer" and bool(odd.words))
    assert not set(heard) & set("\x1b\x07\u202e\x9b")
    history = RunFolder.find("a").journal.history()
    spent = history.batches[0]["metrics"]
    assert spent["requests"] == odd.requests + 5
    assert spent.get("retries", 0) == odd.requests - 1
    assert spent.get("given_up", 0) == (odd.status == "engine_error")
    assert spent.get("estimated", 0) == (odd.tokens is None)
    booked = (first["prompt_tokens"], first["completion_tokens"])
    if odd.tokens is None:
        assert 0 < booked[0] < 1000 > booked[1] > 0
    else:
        # What was billed is in the ledger, also where no answer came of it that a rollout could have.
        assert booked == (NOTHING if odd.status == "engine_error" else odd.tokens)
        assert spent["cost"] == sum(odd.tokens) + 5 * sum(GOOD)
