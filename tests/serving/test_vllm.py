"""`coevo serve` with the real vLLM: it says what coevo's own endpoint says, and nothing of it is left."""

import subprocess

import httpx
import pytest
from test_serve import PATIENCE_SECONDS, ends, environment, evolve, serving

pytest.importorskip("vllm", reason="vLLM is not installed (make test-vllm)")
pytest.importorskip("transformers")
pytestmark = pytest.mark.vllm

KEY = {"authorization": "Bearer secret"}
QUESTIONS = ["hello", "Say the number 3", "x" * 40]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    from tiny_llama import save_tiny_llama

    folder = tmp_path_factory.mktemp("vllm")
    # vLLM's attention on the CPU knows heads of 32 and more.
    base = save_tiny_llama(folder / "tiny", width=128)
    options = {"transformers": {"dtype": "bfloat16"}}
    evolve(folder, "real", "advised", "advice", "transformers", base, **options)
    return folder


def first_token(url, question):
    """The log-probability of the likeliest first token."""
    body = {
        "model": "real", "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 1,
        "logprobs": True,
    }  # fmt: skip
    found = httpx.post(f"{url}/chat/completions", json=body, headers=KEY, timeout=PATIENCE_SECONDS)
    assert found.status_code == 200, found.text
    (choice,) = found.json()["choices"]
    (token,) = choice["logprobs"]["content"]
    return token["logprob"]


def test_vllms_server_says_what_the_own_endpoint_says_and_ends_with_coevo(place):
    with serving(place, "real", "--engine", "transformers") as (_, line, url):
        context = line.rpartition(";")[2]
        own = [first_token(url, question) for question in QUESTIONS]
    with serving(place, "real", "--engine", "transformers", "--at", "0") as (_, _line, url):
        before = [first_token(url, question) for question in QUESTIONS]
    options = ["--set", "vllm.enforce-eager=true", "--set", "vllm.max-model-len=256", "--key-env", "MY_KEY"]
    env = environment(place, VLLM_CPU_KVCACHE_SPACE="1", MY_KEY="secret")
    with serving(place, "real", "--engine", "vllm", *options, env=env) as (server, line, url):
        assert line.endswith(context)
        served = [first_token(url, question) for question in QUESTIONS]
        assert strangers(url) == [401, 401, 421, 403, 415, 413, 200]
        pids = descendants(server.pid)
        assert pids
        server.kill()
        assert ends(pids) == []
    near = max(abs(a - b) for a, b in zip(own, served, strict=True))
    far = max(abs(a - b) for a, b in zip(before, served, strict=True))
    assert near < 0.1 < far  # bf16 in two ways of computing, against the weights of one update earlier


def strangers(url):
    """What is answered to some who should not ask, and at last to one who may."""
    origin = url.removesuffix("/v1")
    body = {"model": "real", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1}
    asked = [
        httpx.post(f"{origin}/invocations", json=body),  # generates, and vLLM asks for no key there
        httpx.get(f"{origin}/metrics"),
        httpx.get(f"{url}/models", headers={**KEY, "host": "evil.example"}),
        httpx.get(f"{url}/models", headers={**KEY, "origin": "http://evil.example"}),
        httpx.post(f"{origin}/tokenize", content=b"{}", headers=KEY),
        httpx.post(f"{url}/chat/completions", headers=KEY, json={**body, "user": "x" * (4 << 20)}),
        httpx.post(f"{url}/chat/completions", headers=KEY, json=body, timeout=PATIENCE_SECONDS),
    ]
    return [answer.status_code for answer in asked]


def descendants(pid):
    shown = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = [tuple(map(int, line.split())) for line in shown.splitlines()]
    found = [pid]
    for one in found:
        found += [child for child, parent in parents if parent == one]
    return found[1:]
