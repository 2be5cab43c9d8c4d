import pytest

from tests.openai_engine.api_kit import KEY

pytest.importorskip("openai", reason="the engine needs coevo[openai]")


@pytest.fixture(autouse=True)
def _key_and_short_waits(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    proxies = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    package = ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS")
    for name in (*package, *proxies, *map(str.upper, proxies), "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("coevo_openai.asking._FIRST_WAIT", 0.02)
