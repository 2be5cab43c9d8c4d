"""Who is let in to `coevo serve`, and before vLLM's server, by the real command line where that matters."""

import asyncio
import re

import httpx
import pytest
import test_serve
from test_serve import serving, told

import coevo
from coevo.tools.serve import vllm_gate
from coevo.tools.serve.where import Key, key_of

place, with_stand_in = test_serve.place, test_serve.with_stand_in  # fixtures


def bearer(key):
    return {"authorization": f"Bearer {key}"}


def test_a_key_is_made_for_each_start_and_told_once_in_one_line(place):
    keys = set()
    for _ in range(2):
        with serving(place, "own", "--engine", "checkpoint", "--own-key") as (server, line, url):
            said = server.stderr.readline()
            key = said.split()[-1]
            assert said.startswith("coevo: the key of this start, to be sent as 'Authorization: Bearer KEY'")
            assert key not in line
            assert httpx.get(f"{url}/models").status_code == 401
            assert httpx.get(f"{url}/models", headers=bearer(key)).status_code == 200
            server.terminate()
            out, err = server.communicate(timeout=600)
            assert (out, err, server.returncode) == ("", "", 0)
            keys.add(key)
    assert len(keys) == 2
    assert min(map(len, keys)) >= 32


def test_without_a_key_no_web_page_is_let_in_all_the_same(place):
    with serving(place, "own", "--engine", "checkpoint", "--no-key") as (_, _line, url):
        assert httpx.get(f"{url}/models").status_code == 200
        assert httpx.get(f"{url}/models", headers={"host": "evil.example"}).status_code == 421
        assert httpx.get(f"{url}/models", headers={"origin": "http://evil.example"}).status_code == 403


def test_another_name_is_answered_to_where_it_is_allowed(place):
    with serving(place, "own", "--engine", "checkpoint", "--no-key", "--allow-host", "models.example.org") as served:
        url = served[2]
        assert httpx.get(f"{url}/models", headers={"host": "models.example.org"}).status_code == 200
        assert httpx.get(f"{url}/models", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_no_key_is_for_loopback(host):
    assert key_of(None, True, host) == Key("")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "0", "models.example.org"])
def test_elsewhere_there_is_a_key(host):
    with pytest.raises(coevo.UserError, match=r"^--no-key with --host .*: it is reached from other machines"):
        key_of(None, True, host)
    assert len(key_of(None, False, host).value) >= 32


@pytest.mark.parametrize("value", ["é", "a b", "a\x7fb"])
def test_a_key_that_no_header_can_hold_is_a_mistake(monkeypatch, value):
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(coevo.UserError, match=r"^--key-env MY_KEY: the key has a letter that no header can hold"):
        key_of("MY_KEY", False, "127.0.0.1")


def test_a_key_is_in_no_text_of_the_program():
    assert "secret" not in repr(Key("secret"))


@pytest.mark.parametrize("with_stand_in", ["vllm"], indirect=True)
def test_vllms_server_is_started_behind_the_gate_with_a_key_of_its_own(place, with_stand_in):
    with serving(place, "own", "--own-key", "--allow-host", "a.b", env=with_stand_in(VLLM_API_KEY="x")) as served:
        server, _, url = served
        found = told(url)
        said = [server.stderr.readline() for _ in range(2)]
    assert found["key"] == said[1].split()[-1] != "x"
    assert re.search("the key of this start", said[1])
    assert found["names"] == "127.0.0.1 a.b"
    assert found["arguments"][-2:] == ["--middleware", vllm_gate.NAME]


async def _application(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": (await receive())["body"]})


def before_vllm(monkeypatch, key, *requests):
    """The statuses of what is asked through the gate, told as vLLM's process is."""
    variables = {"VLLM_API_KEY": "of somebody else"}
    vllm_gate.tell(variables, key, "127.0.0.1", ("a.b",))
    for name in ("VLLM_API_KEY", vllm_gate.HOSTS):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    gate = vllm_gate.VllmGate(_application)

    async def go():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://127.0.0.1:1") as client:
            return [
                (await client.request(method, path, headers=headers, content=b"{}")).status_code
                for method, path, headers in requests
            ]

    return asyncio.run(go())


def test_before_vllm_the_key_is_asked_for_on_every_path_but_that_of_its_health(monkeypatch):
    json = {"content-type": "application/json"}
    paths = ["/v1/models", "/invocations", "/tokenize", "/metrics", "/docs"]
    asked = [(method, path, json) for path in paths for method in ("GET", "POST", "OPTIONS")]
    assert before_vllm(monkeypatch, "k", *asked) == [401] * len(asked)
    assert before_vllm(monkeypatch, "k", *((m, p, {**json, **bearer("k")}) for m, p, _ in asked)) == [200] * len(asked)
    assert before_vllm(monkeypatch, "k", ("GET", "/health", {}), ("POST", "/health", json)) == [200, 401]


def test_before_vllm_names_pages_and_forms_are_looked_at_without_a_key_as_well(monkeypatch):
    json = {"content-type": "application/json"}
    asked = [
        ("POST", "/v1/completions", json), ("POST", "/v1/completions", {**json, "host": "a.b"}),
        ("POST", "/v1/completions", {**json, "host": "c.d"}), ("POST", "/v1/completions", {**json, "origin": "http://c"}),
        ("POST", "/v1/completions", {}),
    ]  # fmt: skip
    assert before_vllm(monkeypatch, "", *asked) == [200, 200, 421, 403, 415]
