"""Agents reach the endpoint of their member with clients of their own, whatever proxy the environment names."""

import asyncio
import json
import subprocess
import sys
import urllib.request

import pytest

from coevo.endpoint import serve
from coevo.records import Completion

pytest.importorskip("starlette", reason="endpoints need coevo[serve]")

ASK = "import sys, urllib.request; print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers={'Authorization': f'Bearer {sys.argv[2]}'})).status)"  # noqa: E501 - a program


class Someone:
    id = "0"

    async def complete(self, requests):
        return [Completion("1", (1,), (2,), "stop") for _ in requests]


@pytest.fixture
def _proxied(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "a.example")  # and so what is added is taken back after the test
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.mark.usefixtures("_proxied")
def test_an_agents_client_goes_through_no_proxy_in_this_process_or_another():
    def here(url, key):
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return json.load(answer)["data"][0]["id"]

    def child(url, key):
        done = subprocess.run([sys.executable, "-c", ASK, url, key], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    async def go():
        async with serve(Someone()) as endpoint:
            url = f"{endpoint.base_url}/models"
            return [await asyncio.to_thread(ask, url, endpoint.key) for ask in (here, child)]

    assert asyncio.run(go()) == ["coevo", "200"]
