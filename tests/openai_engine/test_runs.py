"""Context-only runs, and what a user is told who wants something else."""

from pathlib import Path

import pytest
from loop_kit import rollouts

from coevo.errors import UserError
from coevo.runs.folder import RunFolder
from coevo_openai import OpenAIEngine
from tests.openai_engine.api_kit import KEY, engine_on, files_with, run_on
from tests.openai_engine.api_server import MODEL, says, serving

SMALL = ["--model", MODEL, "--task", "tsp_construct", "--set", "tsp_construct.instance_options={count=2}"]


class Designer:
    """Answers as chat models do: another line each time, in one wrapping or another."""

    wrappings = ("score = {}", "```python\nscore = {}\n```", "`score = {}`", "{}", "Here it is:\n\nscore = {}")

    def __init__(self):
        self.said = 0

    def __call__(self, body):
        self.said += 1
        wrapping = self.wrappings[self.said % len(self.wrappings)]
        return wrapping.format(f"d_current - 0.{self.said} * d_mean")


@pytest.mark.parametrize(
    ("context", "options"),
    [("sample", ["--set", "sample.batch=10"]), ("eoh", ["--set", "eoh.population=3", "--generations", "2"])],
)
def test_a_heuristic_is_searched_with_a_chat_model(in_empty_folder, coevo, context, options):
    with serving(always=says(Designer(), usage=(50, 9))) as server:
        code, out, err = coevo(
            "run", "--engine", "openai", *SMALL, "--param", "none", "--context", context, *options, "--name", "a",
            "--generations", "1", "--set", f"openai.base_url={server.url}", "--quiet",
        )  # fmt: skip
    assert (code, err) == (0, "")
    assert "best" in out
    found = rollouts("a")
    # Every wrapping was seen through.
    assert {r["status"] for r in found} == {"ok"}
    assert {len(r["artifacts"]["answer"].splitlines()) for r in found} == {1}
    assert len(server.asked) == len(found) >= 6
    assert all("stop" not in body for body in server.bodies)
    assert Path("runs/a/best/heuristic.py").exists()
    ledger = RunFolder.find("a").journal.history().ledger
    assert (ledger.prompt_tokens, ledger.completion_tokens) == (50 * len(found), 9 * len(found))
    assert files_with(KEY) == []


def test_the_run_says_which_server_it_used_and_how(in_empty_folder):
    with serving() as server:
        run_on(server, openai={"prompt_price": 2.0, "completion_price": 8.0, "max_cost": 1.5})
    info = RunFolder.find("a").info()
    assert info["engine"]["server"] == info["describe"]["server"] == server.url
    assert info["engine"]["key_env"] == "OPENAI_API_KEY"
    assert info["describe"]["price"] == "2 in, 8 out a million tokens, at most 1.5"
    assert info["engine"]["package"].startswith("openai ")


def test_weights_that_are_somebody_elses_are_not_trained_and_nothing_is_asked(in_empty_folder, coevo):
    with serving() as server:
        code, out, err = coevo(
            "run", "--engine", "openai", *SMALL, "--param", "es", "--set", f"openai.base_url={server.url}"
        )
    assert (code, out) == (2, "")
    assert err.startswith(
        "coevo: parameter updater 'es' cannot train on engine 'openai', whose weights are fixed; use an engine that "
        "adapts ("
    )
    assert "transformers" in err
    assert "openai" not in err.partition("adapts (")[2]
    assert err.endswith("), or --param none\n")
    assert err.count("\n") == 1
    assert (server.asked, server.models_asked) == ([], 0)
    assert not Path("runs").exists()


MISTAKES = {
    "openai.key_env=sk-proj-abc": "key_env is the name of an environment variable",
    "openai.base_url=localhost:8000": "base_url got 'localhost:8000': expected one such as http://127.0.0.1:8000/v1",
    "openai.base_url=http://127.0.0.1:99999/v1": "base_url got 'http://127.0.0.1:99999/v1'",
    "openai.base_url=http://me:secret@127.0.0.1/v1": "base_url may hold no user, password or query",
    "openai.base_url=me:secret@127.0.0.1:8000/v1": "base_url may hold no user, password or query",
    "openai.base_url=http://[secret@": "base_url may hold no user, password or query",
    "openai.base_url=http://[::1": "base_url got 'http://[::1': expected one such as",
    "openai.extra_body={messages=[]}": "extra_body has 'messages', which every request has already",
    "openai.extra_body={stream=true}": "extra_body has stream=True; expected stream=false or nothing",
    "openai.omit=['messages']": "omit has 'messages', without which there is no request",
    "openai.max_cost=1.0": "max_cost needs prompt_price and completion_price",
    "openai.prefil='drop'": "engine 'openai' has no option 'prefil'; did you mean 'prefill'?",
    "openai.prefill='keep'": "option 'prefill' got 'keep'",
    "openai.concurrency=0": "option 'concurrency' got 0",
    "openai.budget_seconds=0": "option 'budget_seconds' got 0",
    "openai.seed_bits=64": "option 'seed_bits' got 64",
}


@pytest.mark.parametrize("assignment", MISTAKES)
def test_a_mistake_is_one_line(in_empty_folder, coevo, assignment):
    code, out, err = coevo("run", "--engine", "openai", *SMALL, "--param", "none", "--set", assignment)
    assert (code, out) == (2, ""), err
    assert MISTAKES[assignment] in err
    assert err.count("\n") == 1
    assert not Path("runs").exists()
    for secret in ("sk-proj-abc", "secret"):
        assert secret not in err


def test_a_server_elsewhere_needs_a_key_and_the_message_names_the_variable(in_empty_folder, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match=r"needs a key for https?://\S+: set the environment variable OPENAI_API_KEY"):
        OpenAIEngine(MODEL)
    with pytest.raises(UserError, match="set the environment variable MY_KEY"):
        OpenAIEngine(MODEL, base_url="https://models.example/v1", key_env="MY_KEY")
    engine = OpenAIEngine(MODEL, base_url="https://models.example/v1", key_env="", check=False)
    assert engine.record()["key_env"] == ""


def test_a_server_on_this_machine_needs_no_key(monkeypatch):
    from tests.openai_engine.api_kit import ask

    monkeypatch.delenv("OPENAI_API_KEY")
    with serving() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert ask(OpenAIEngine(MODEL))[0].text == "1.0"


def test_a_model_may_be_named_like_a_folder(in_empty_folder):
    Path(MODEL).mkdir(parents=True)
    with serving() as server:
        assert run_on(server)["status"] == "finished"
    with serving() as server, pytest.raises(UserError, match="--model is empty"):
        run_on(server, "b", model=" ")


def test_a_budget_of_tokens_says_what_to_use_instead(in_empty_folder, coevo):
    with serving() as server:
        code, out, err = coevo(
            "run", "--engine", "openai", *SMALL, "--param", "none", "--context", "sample", "--tokens", "1000", "--set",
            f"openai.base_url={server.url}",
        )  # fmt: skip
    assert (code, out) == (2, "")
    assert err == (  # and no line about a run, which there is not
        "coevo: --tokens needs an engine that counts tokens and a task of one call an episode; use --calls instead\n"
    )
    assert server.asked == []


def test_a_budget_of_calls_holds(in_empty_folder):
    with serving() as server:
        summary = run_on(server, calls=8, generations=5)
    assert (summary["reason"], summary["calls"], len(server.asked)) == ("calls", 6, 6)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with serving() as server, pytest.raises(UserError, match=r"needs the package 'openai'.*'coevo\[openai\]'"):
        engine_on(server)
