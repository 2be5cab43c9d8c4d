"""Proxies and certificates as the environment names them: read once, told by name, never for loopback."""

import importlib.machinery
import os
import sys
import threading
import types
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from coevo.errors import UserError
from coevo.machine import network
from coevo.tools.doctor.surroundings import connections

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
DEAD = "http://127.0.0.1:9"
ELSEWHERE = "https://models.invalid/v1"
HERE = ["http://127.0.0.1:8000/v1", "https://localhost/v1", "http://[::1]:8000/v1", "http://127.9.9.9", "http://0.0.0.0:1",
        "http://a.localhost"]  # fmt: skip


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in (*PROXIES, *map(str.upper, PROXIES), "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("url", HERE)
@pytest.mark.parametrize("value", [DEAD, "socks5://127.0.0.1:9", "nonsense://x"])
def test_loopback_never_goes_through_a_proxy(monkeypatch, url, value):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, value)
    assert network.proxy_for(url) is None


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_proxy_is_told_with_the_variable_that_names_it_and_without_its_password(monkeypatch, name):
    monkeypatch.setenv(name, "http://me:secret@proxy.example:3128")
    found = network.proxy_for(ELSEWHERE)
    assert (found.url, found.variable) == ("http://me:secret@proxy.example:3128", name)
    assert str(found) == f"the proxy http://proxy.example:3128 of {name}"


def test_the_variable_of_the_scheme_goes_before_that_for_all(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    assert network.proxy_for(ELSEWHERE).url == "http://proxy.example:3128"
    assert network.proxy_for("https://[::1]/v1") is None


def test_no_proxy_is_kept(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", DEAD)
    for value, through in (("models.invalid", False), (".invalid", False), ("*", False), ("other.invalid", True)):
        monkeypatch.setenv("NO_PROXY", value)
        assert (network.proxy_for(ELSEWHERE) is not None) == through


@pytest.mark.parametrize(
    "value", ["socks://h:1", "ftp://h:1", "http://", "http://me:secret@[bad", "http://h:99999", "://"]
)
def test_what_is_no_proxy_is_told_in_one_line_without_its_password(monkeypatch, value):
    monkeypatch.setenv("ALL_PROXY", value)
    with pytest.raises(UserError, match=r"^the environment variable ALL_PROXY names the proxy '.*NO_PROXY$") as failure:
        network.proxy_for(ELSEWHERE)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("value", ["socks5://h:1", "socks5h://me:secret@h:1"])
def test_a_socks_proxy_without_its_package_is_told_with_what_mends_it(monkeypatch, value):
    monkeypatch.setenv("ALL_PROXY", value)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=r"^the environment variable ALL_PROXY names a SOCKS proxy.*pip install socksio"
    ):
        network.proxy_for(ELSEWHERE)


def test_certificates_that_cannot_be_read_are_told_with_their_variable(monkeypatch, tmp_path):
    assert network.certificates() is None
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for name, value, why in (
        ("SSL_CERT_FILE", str(tmp_path / "missing"), "No such file"),
        ("SSL_CERT_FILE", str(junk), "holds no certificates"),
        ("SSL_CERT_DIR", str(tmp_path / "missing"), "which is no folder"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with pytest.raises(UserError) as failure:
                network.certificates()
        assert f"the environment variable {name} names {value!r}" in str(failure.value)
        assert why in str(failure.value)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert network.certificates() is not None


def test_the_doctor_tells_what_is_set_and_what_is_wrong(monkeypatch):
    (fine,) = connections()
    assert (fine.name, fine.state, fine.found) == ("proxy", "ok", "none: servers are asked directly")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
    proxy, wrong = connections()
    assert proxy.found == "https through the proxy http://proxy.example:3128 of HTTPS_PROXY"
    assert (wrong.name, wrong.state) == ("certificates", "warning")
    assert "SSL_CERT_FILE" in wrong.found
    assert wrong.mend.startswith("unset it")
    monkeypatch.setenv("ALL_PROXY", "nonsense://x")
    (wrong,) = [check for check in connections() if check.state == "warning" and check.name == "proxy"]
    assert "ALL_PROXY" in wrong.found


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"HTTPS_PROXY": "nonsense://x"}, "the environment variable HTTPS_PROXY names the proxy 'nonsense://x'"),
        ({"SSL_CERT_FILE": "/nonexistent"}, "the environment variable SSL_CERT_FILE names '/nonexistent'"),
        ({"HTTPS_PROXY": DEAD}, f"from its hub through the proxy {DEAD} of HTTPS_PROXY: refused"),
        ({}, "'/full/hub' cannot be used: set HF_HOME to a folder that may be written to"),
    ],
)
def test_a_model_that_cannot_be_fetched_for_the_environments_sake_names_the_variable(
    monkeypatch, coevo, variables, words
):
    def snapshot_download(*_, **__):
        raise ConnectionError("refused") if variables else PermissionError(13, "Permission denied", "/full/hub")

    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = snapshot_download
    hub.__spec__ = importlib.machinery.ModuleSpec("huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, _, err = coevo("model", "pull", "someone/something")
    assert code != 0
    assert words in err.splitlines()[-1]


def test_other_peoples_clients_are_told_to_ask_loopback_directly():
    bare = {"PATH": "/bin"}
    network.spare_loopback(bare)
    assert bare == {"PATH": "/bin"}
    for given in ({}, {"NO_PROXY": "a.example"}, {"no_proxy": "a.example"}, {"NO_PROXY": "*"}):
        environment = {"HTTP_PROXY": DEAD, **given}
        for _ in range(2):
            network.spare_loopback(environment)
        for name in ("NO_PROXY", "no_proxy"):
            listed = environment.get(name, "*").split(",")
            assert listed == ["*"] or set(listed) == {"127.0.0.1", "localhost", "::1", *filter(None, given.values())}
            assert len(listed) == len(set(listed))


def test_a_server_of_ours_is_asked_directly(monkeypatch):
    class Quiet(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    monkeypatch.setenv("http_proxy", DEAD)
    with HTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with network.local_opener().open(f"http://127.0.0.1:{server.server_port}/") as answer:
            assert answer.status == 204
        thread.join()
    assert os.environ["http_proxy"] == DEAD
