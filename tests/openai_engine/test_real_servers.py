"""Runs against real model servers on loopback: transformers' own, and vLLM's where it is installed."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from loop_kit import rollouts

from tests.openai_engine.api_kit import request
from tests.tiny_llama import save_tiny_llama

TRANSFORMERS = "from transformers.cli.transformers import main; main()"


@contextmanager
def server_process(command, log, seconds, **environment):
    """A server on a free port of loopback; gives its URL once it is healthy."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", **environment}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=output, stderr=output, env=environment
        )
    try:
        deadline = time.monotonic() + seconds
        while not healthy(f"{address}/health"):
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
            assert time.monotonic() < deadline, f"not healthy after {seconds} s"
            time.sleep(0.3)
        yield f"{address}/v1"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def healthy(url):
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = save_tiny_llama(tmp_path_factory.mktemp("models") / "tiny", positions=2048)
    # Whether it samples at all, transformers' server takes from the model's files; those of chat models say so.
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "do_sample": True}))
    return folder


@pytest.fixture(scope="module")
def transformers_server(tiny, tmp_path_factory):
    for package in ("transformers", "fastapi", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"`transformers serve` needs {package}")
    command = [sys.executable, "-c", TRANSFORMERS, "serve", str(tiny), "--device", "cpu"]
    with server_process(command, tmp_path_factory.mktemp("log") / "serve.log", 1200) as url:
        yield url, str(tiny)


def run_lines(url, model, *options):
    return [
        "run", "--engine", "openai", "--model", model, "--param", "none", "--name", "a", "--quiet",
        "--set", f"openai.base_url={url}", "--set", "sampling.max_new_tokens=12", *options,
    ]  # fmt: skip


def test_a_context_only_run_on_transformers_own_server(in_empty_folder, coevo, transformers_server):
    url, model = transformers_server
    small = ["--context", "sample", "--set", "sample.batch=4", "--generations", "2", "--task", "tsp_construct"]
    code, _, err = coevo(*run_lines(url, model, *small, "--set", "tsp_construct.instance_options={count=2}"))
    assert (code, err) == (0, "")
    found = rollouts("a")
    assert len(found) == 8
    # A random model writes no heuristic, but every answer is its own and was counted by the server.
    assert "engine_error" not in {r["status"] for r in found}
    assert all(0 < r["completion_tokens"] <= 12 < r["prompt_tokens"] for r in found)
    assert len({r["trajectory"]["steps"][0]["text"] for r in found}) > 1


def test_a_stop_string_and_a_seed_on_a_real_server(transformers_server):
    from tests.openai_engine.api_kit import ask

    url, model = transformers_server
    from coevo_openai import OpenAIEngine

    engine = OpenAIEngine(model, base_url=url)
    (whole,) = ask(engine, request("say something", seed=7))
    stop = whole.text[3]
    (cut,) = ask(engine, request("say something", seed=7, stop=(stop,)))
    assert stop not in cut.text
    assert engine.spending.estimated == 0


@pytest.mark.vllm
def test_a_context_only_run_on_vllms_own_server(in_empty_folder, coevo, tiny, tmp_path, monkeypatch):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    from coevo.errors import UserError
    from coevo.models import catalogue as models
    from coevo_openai import OpenAIEngine
    from tests.openai_engine.api_kit import ask

    monkeypatch.delenv("COEVO_CACHE")  # the model is in the user's own
    try:
        model, valid = str(models.resolve("smollm2-135m")), True
    except UserError:
        model, valid = str(tiny), False
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model, "--served-model-name",
               "org/served", "--max-model-len", "1024", "--enforce-eager", "--dtype", "bfloat16"]  # fmt: skip
    with server_process(command, tmp_path / "vllm.log", 1200, VLLM_CPU_KVCACHE_SPACE="1") as url:
        engine = OpenAIEngine("org/served", base_url=url)
        assert engine.describe()["prefill"] == "continue"
        (long,) = ask(engine, request("x y " * 4000))
        assert long.finish_reason == "context_overflow"
        (same,), (again,) = (ask(engine, request("Count.", prefill="1, 2,", seed=2**63)) for _ in range(2))
        assert same.text == again.text != ""
        small = ["--context", "eoh", "--generations", "1", "--task", "tsp_construct", "--set", "eoh.population=4"]
        code, _, err = coevo(
            *run_lines(url, "org/served", *small, "--set", "tsp_construct.instance_options={count=2}"),
            "--set", "sampling.max_new_tokens=48",
        )  # fmt: skip
    assert (code, err) == (0, "")
    found = rollouts("a")
    assert "engine_error" not in {r["status"] for r in found}
    assert all(r["prompt_tokens"] and r["completion_tokens"] for r in found)
    if valid:
        # The demo model goes on after `score =`, as it does in this process.
        assert sum(r["status"] == "ok" for r in found) >= len(found) // 4
