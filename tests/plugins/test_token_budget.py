"""A limit of tokens holds whatever a run repairs, probes, asks again and is answered.

The engine counts the tokens of every request that it gets. Those that it then fails to answer have cost it all that
they can: the prompt, and the longest answer.
"""

import json
import shutil
from pathlib import Path

import loop_kit
import pytest
import search_kit
from hypothesis import given, settings
from hypothesis import strategies as st

import coevo
import coevo_eoh
import coevo_sample
from coevo.app.launch import resume
from coevo.errors import RunError, UserError

LONGEST = 4
"""Tokens of an answer, by the task's brief."""


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    search_kit.CountingEngine.made.clear()


def played(tokens, *, context="eoh", engine=None, param="es", retries=2, probe=0, plugin=None, **changes):
    """Run within a limit; (tokens that the engine counted, what the run says of itself or None)."""
    shutil.rmtree("runs", ignore_errors=True)
    eoh = {"population": 3, "initial_batches": 2, "repair": True, "show_failures": True}
    config = {
        "task": "numbers-task", "engine": "counting", "counting": engine or {}, "param": param, "context": context,
        "generations": 4, "tokens": tokens, "name": "a", "loggers": [], "probe": {"every": probe, "answers": 3},
        "rollouts": {"chunk": 4, "retries": retries},
        **({"es": {"population": 4, "answers": 2, "sigma": 0.3}} if param == "es" else {}),
        **({"eoh": eoh} if context == "eoh" else {"sample": {"batch": 5}}),
        **changes,
    }  # fmt: skip
    summary = None
    try:
        summary = coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_sample, plugin or search_kit.Plugin()))
    except (UserError, RunError) as error:
        assert "too small" in str(error) or "engine_error" in str(error), error  # noqa: PT017 - a run may end so
    return sum(engine.tokens for engine in search_kit.CountingEngine.made), summary


@given(
    tokens=st.integers(1, 3000),
    fails=st.sampled_from([0.0, 0.1, 0.4, 0.8]),
    seed=st.integers(0, 2**16),
    rolling=st.booleans(),
    retries=st.integers(0, 3),
    probe=st.integers(0, 2),
    param=st.sampled_from(["es", "none"]),
    context=st.sampled_from(["eoh", "eoh", "sample"]),
    calls=st.sampled_from([None, None, 40]),
)
@settings(max_examples=60, deadline=None)
def test_no_run_costs_more_tokens_than_its_limit(tokens, fails, seed, rolling, retries, probe, param, context, calls):
    search_kit.CountingEngine.made.clear()
    engine = {"fails": fails, "seed": seed, "rolling": rolling}
    limits = {} if calls is None else {"calls": calls}
    cost, summary = played(
        tokens, context=context, engine=engine, param=param, retries=retries, probe=probe, **limits
    )  # fmt: skip
    assert cost <= tokens
    if summary is not None:
        assert summary["tokens"] == cost


PROMPT = 3  # words of "Say a number."
BATCH = 5 * (PROMPT + LONGEST)
"""What five draws cost at most."""


def test_a_batch_is_started_if_all_of_its_answers_may_be_as_long_as_they_can():
    cost, summary = played(BATCH, context="sample", param="none")
    assert cost == summary["tokens"] <= BATCH
    assert (summary["calls"], summary["reason"]) == (5, "tokens")
    assert played(BATCH - 1, context="sample", param="none") == (cost, None)  # nothing more was asked


def test_what_answers_leave_of_their_longest_is_there_for_the_next_batch():
    cost, summary = played(2 * BATCH - 1, context="sample", param="none")
    assert summary["calls"] == 10
    assert BATCH < cost == summary["tokens"] < 2 * BATCH


def test_what_failed_is_booked_at_its_most_and_asked_again_only_if_that_leaves_room():
    always_once = {"fails": 1.0}
    for limit, tries in ((BATCH, 1), (2 * BATCH - 1, 1), (2 * BATCH, 2), (9 * BATCH, 3)):
        search_kit.CountingEngine.made.clear()
        cost, summary = played(limit, context="sample", param="none", engine=always_once, rollouts={"chunk": 5})
        assert summary is None  # every rollout failed, which ends a run
        assert cost == tries * BATCH


@pytest.mark.parametrize("kept", [1, 2, 4, 5])
def test_a_run_that_is_gone_on_with_knows_what_its_failures_cost(kept):
    limit, flaky = 1500, {"fails": 0.3, "seed": 5}
    cost, summary = played(limit, engine=flaky)
    assert 0 < cost == summary["tokens"] <= limit
    assert search_kit.CountingEngine.made[0].failed
    journal = Path("runs/a/journal.jsonl")
    lines = journal.read_text(encoding="utf-8").splitlines()
    assert len(lines) > kept + 1
    journal.write_text("\n".join(lines[: kept + 1]) + "\n", encoding="utf-8")  # as a kill leaves it
    Path("runs/a/asked.jsonl").unlink()
    for file in sorted(Path("runs/a/rollouts").iterdir())[kept:]:
        file.unlink()
    ledger = json.loads(lines[kept])["ledger"]
    search_kit.CountingEngine.made.clear()
    again = resume("a", plugins=loop_kit.plugins(coevo_eoh, coevo_sample, search_kit.Plugin()))
    (engine,) = search_kit.CountingEngine.made
    before = ledger["prompt_tokens"] + ledger["completion_tokens"]
    assert engine.tokens > 0
    assert before + engine.tokens == again["tokens"] <= limit


@pytest.mark.parametrize("limit", [{"calls": 100}, {"tokens": 1000}, {}], ids=["calls", "tokens", "no budget"])
def test_an_episode_that_asks_for_more_than_its_brief_says_is_stopped_before_it_does(limit):
    class TalksTwice(search_kit.NumbersTask):
        def brief(self):
            return coevo.Brief(
                "talks", "Talks", "Say a number.", hole="expression", direction="minimize", prefill="x =",
                components={"prompt": "Say a number."}, max_new_tokens=LONGEST,
            )  # fmt: skip

        def episode(self, example, context):
            return search_kit.TwiceEpisode(context, 2)

    class Talks(search_kit.Plugin):
        @coevo.hookimpl
        def register_tasks(self, tasks):
            tasks.register("talks", TalksTwice)

    done = coevo.run(
        {"task": "talks", "engine": "counting", "counting": {"always": "broken"}, "param": "none",
         "context": "sample", "name": "b", "loggers": [], "generations": 1, **limit},
        loop_kit.plugins(coevo_sample, Talks()),
    )  # fmt: skip
    (engine,) = search_kit.CountingEngine.made
    assert engine.calls == done["calls"] == 20
    assert done["statuses"] == {"exception": 20}
    assert {r["artifacts"]["message"] for r in loop_kit.rollouts("b")} == {
        "CallLimitError: the episode asks for call 2; its task's brief says max_calls = 1"
    }


def test_a_context_updater_that_changes_what_is_asked_is_stopped_before_it_costs_more():
    class Louder:
        def __init__(self, episode):
            self.episode = episode
            self.step, self.result = episode.step, episode.result

        def requests(self):
            loud = {"role": "user", "content": "Say a number. " * 9}
            return [coevo.Request((loud,)) for _ in self.episode.requests()]

    class Loud(coevo_sample.Sample):
        def wrap(self, episode):
            return Louder(episode)

    class Plugin(search_kit.Plugin):
        @coevo.hookimpl
        def register_context_updaters(self, updaters):
            updaters.register("loud", Loud)

    config = {"task": "numbers-task", "engine": "counting", "param": "none", "context": "loud", "loggers": []}
    with pytest.raises(
        UserError, match="something else than was planned, so that --tokens cannot be kept; use --calls"
    ):
        coevo.run({**config, "name": "a", "tokens": 1000}, loop_kit.plugins(Plugin()))
    assert search_kit.CountingEngine.made[0].tokens == 0
    assert coevo.run({**config, "name": "b", "calls": 30}, loop_kit.plugins(Plugin()))["calls"] == 30
