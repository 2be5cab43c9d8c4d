"""Variables of the environment: none stands between the engine and a server here, and a wrong one is named."""

import socket

import pytest

from coevo.app.launch import resume
from coevo.errors import RunError, UserError
from coevo_openai import OpenAIEngine
from coevo_openai.connecting import OPENAI, Connections
from tests.openai_engine.api_kit import KEY, ask, engine_on, failure_of, run_on
from tests.openai_engine.api_server import MODEL, answers, fails, says, serving

DEAD = "http://127.0.0.1:9"
ELSEWHERE = "http://models.invalid/v1"
LEFT_ALONE = [
    {"ALL_PROXY": "socks5://127.0.0.1:9"},
    {"all_proxy": "nonsense://127.0.0.1:9"},
    {"HTTP_PROXY": DEAD, "http_proxy": DEAD, "HTTPS_PROXY": DEAD},
    {"HTTP_PROXY": DEAD, "NO_PROXY": "other.example"},
    {"SSL_CERT_FILE": "/nonexistent/file"},
    {"SSL_CERT_DIR": "/nonexistent"},
    {"SSLKEYLOGFILE": "/nonexistent/file"},
    {"OPENAI_BASE_URL": "nonsense"},
]


@pytest.mark.parametrize("variables", LEFT_ALONE, ids=str)
def test_a_server_on_this_machine_is_asked_whatever_the_environment_says(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with serving() as server:
        assert ask(engine_on(server))[0].text == "1.0"
    assert server.models_asked == 1


def test_what_is_meant_for_openai_is_not_sent_to_another_server(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-mine")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-mine")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: secret\nAuthorization: Bearer other\nnonsense")
    with serving() as server:
        ask(engine_on(server))
        sent = str(server.headers).lower()
        for mine in ("org-mine", "proj-mine", "x-mine", "secret", "bearer other"):
            assert mine not in sent
        assert server.keys == [f"Bearer {KEY}"]
        # With the address it names the whole of it is for that server; only the key stays the one that was named.
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        ask(OpenAIEngine(MODEL))
    assert {"openai-organization", "openai-project", "x-mine"} <= {name.lower() for name in server.headers[-1]}
    assert server.keys[-1] == f"Bearer {KEY}"


def test_without_a_key_none_is_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer other")
    with serving() as server:
        ask(engine_on(server, key_env=""))
    assert server.keys == [""]


def test_a_key_that_a_server_escapes_is_taken_out_all_the_same(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk/0123456789/abcdef")
    body = b'{"choices": [{"message": {"content": "1.0 sk\\/0123456789\\/abcdef"}}]}'
    with serving(answers(200, body)) as server:
        assert ask(engine_on(server))[0].text == "1.0 ***"


# Elsewhere


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_proxy_that_is_dead_is_named_and_not_the_server(monkeypatch):
    proxy = f"http://me:secret@127.0.0.1:{free_port()}"
    monkeypatch.setenv("HTTP_PROXY", proxy)
    with pytest.raises(UserError) as failure:
        OpenAIEngine(MODEL, base_url=ELSEWHERE)
    said = str(failure.value)
    assert said.startswith(f"no server can be reached at {ELSEWHERE} through the proxy http://127.0.0.1:")
    assert said.endswith("mend or unset HTTP_PROXY, or list the server in the environment variable NO_PROXY")
    assert "start it" not in said
    assert "secret" not in said
    gave_up = failure_of(ask, OpenAIEngine(MODEL, base_url=ELSEWHERE, check=False, retries=0))
    assert "of HTTP_PROXY)" in str(gave_up)


def test_a_proxy_that_works_is_gone_through(monkeypatch):
    with serving() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        assert ask(OpenAIEngine(MODEL, base_url=ELSEWHERE))[0].text == "1.0"
    assert proxy.headers[0]["Host"] == "models.invalid"


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [(fails(407, "who are you"), RunError, "(407)"), (fails(502, "no route"), Exception, "502: no route (through")],
)
def test_what_a_proxy_says_itself_is_told_as_that(monkeypatch, act, kind, words):
    with serving(always=act) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        failure = failure_of(ask, OpenAIEngine(MODEL, base_url=ELSEWHERE, retries=0))
    assert isinstance(failure, kind)
    assert words in str(failure)
    assert "of HTTP_PROXY)" in str(failure)


def test_an_address_from_the_environment_is_named_by_its_variable(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "nonsense")
    with pytest.raises(
        UserError, match=r"^the environment variable OPENAI_BASE_URL got 'nonsense': expected one such as"
    ):
        OpenAIEngine(MODEL)
    monkeypatch.setenv("OPENAI_BASE_URL", " ")
    assert OpenAIEngine(MODEL, check=False).describe()["server"] == OPENAI


def test_a_server_that_speaks_no_https_is_told_so():
    with serving() as server, pytest.raises(UserError, match="it does not speak https: give its address as http://"):
        OpenAIEngine(MODEL, base_url=server.url.replace("http:", "https:"))


def test_certificates_that_cannot_be_read_are_named(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/file")
    with pytest.raises(UserError, match="environment variable SSL_CERT_FILE names '/nonexistent/file'"):
        OpenAIEngine(MODEL, base_url="https://models.invalid/v1")
    monkeypatch.delenv("SSL_CERT_FILE")
    said = Connections("https://models.invalid/v1", "", own=False).failed("[SSL: CERTIFICATE_VERIFY_FAILED] no issuer")
    assert "let the environment variable SSL_CERT_FILE name the file of who signed it (it is not set now)" in said


def test_a_run_that_is_resumed_with_another_server_says_so(in_empty_folder, monkeypatch, capsys):
    import loop_kit

    import coevo_openai

    with serving(*[says()] * 8, always=fails(401)) as first:
        monkeypatch.setenv("OPENAI_BASE_URL", first.url)
        failure_of(run_on, first, openai={"base_url": ""})
    with serving() as second:
        monkeypatch.setenv("OPENAI_BASE_URL", second.url)
        capsys.readouterr()
        resume("a", plugins=loop_kit.plugins(coevo_openai))
    assert f"server was '{first.url}' when the run began and is '{second.url}'" in capsys.readouterr().err
