import pytest

from tests.openai_engine.api_kit import KEY

pytest.importorskip("openai", reason="the engine needs coevo[openai]")


@pytest.fixture(autouse=True)
def _key_and_short_waits(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for name in ("OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("coevo_openai.asking._FIRST_WAIT", 0.02)
