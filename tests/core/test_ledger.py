"""What a run has asked is known however it died, and no budget is exceeded by all of its processes together."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import fakes
import loop_kit
import noting_engine
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mortal_kit import World, lived, mortal, plugins

import coevo
from coevo.app.launch import resume
from coevo.errors import CheckFailedError, RunError
from coevo.runs.folder import RunFolder
from coevo.runs.summary import summarize


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def config(**changes):
    base = {
        "task": "mortal", "engine": "dying", "param": "none", "context": "sample", "generations": 3, "name": "a",
        "loggers": [], "probe": {"every": 0}, "rollouts": {"chunk": 2}, "sample": {"batch": 5},
    }  # fmt: skip
    return {**base, **changes}


def lines(kind=("batch", "probe")):
    return [line for line in loop_kit.journal("a") if line["kind"] in kind]


RUNS = st.fixed_dictionaries(
    {
        "limit": st.one_of(
            st.just({}),
            st.integers(5, 70).map(lambda n: {"calls": n}),
            st.integers(40, 500).map(lambda n: {"tokens": n}),
        ),
        "deaths": st.lists(st.integers(0, 60), max_size=4),
        "fails": st.sampled_from([0.0, 0.0, 0.3]),
        "retries": st.integers(0, 2),
        "rolling": st.booleans(),
        "seed": st.integers(0, 99),
        "probe": st.integers(0, 2),
        "trains": st.booleans(),
        "task": st.sampled_from([{}, {"calls": 2}, {"calls": 3, "promised": 2}, "driven"]),
    }
)


def of(run):
    """The configuration; None where a limit of tokens cannot be planned for."""
    alone = run["task"] == {}
    if "tokens" in run["limit"] and not alone:
        return None
    driven = run["task"] == "driven"
    return config(
        task="driven" if driven else "mortal",
        **({} if driven or alone else {"mortal": run["task"]}),
        dying={"fails": run["fails"], "seed": run["seed"], "rolling": run["rolling"]},
        probe={"every": run["probe"], "answers": 3},
        rollouts={"chunk": 2, "retries": run["retries"]},
        **({"param": "es", "es": {"population": 4, "answers": 1, "sigma": 0.3}} if run["trains"] else {}),
        **run["limit"],
    )


@given(run=RUNS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whenever_a_run_dies_its_ledger_holds_what_was_asked_and_its_budget_what_is_allowed(run, monkeypatch):
    shutil.rmtree("runs", ignore_errors=True)
    asked = of(run)
    if asked is None:
        return
    world = World()

    def watch(summary):
        assert summary["calls"] >= world.calls
        if "tokens" in run["limit"]:
            assert summary["tokens"] >= world.tokens
        assert summary["calls"] <= run["limit"].get("calls", 10**9)
        assert summary["tokens"] <= run["limit"].get("tokens", 10**9)

    with monkeypatch.context() as patched:
        mortal(patched, world)
        lived(asked, run["deaths"], world, watch)
        assert world.calls <= run["limit"].get("calls", 10**9)
        assert world.tokens <= run["limit"].get("tokens", 10**9)
        if run["fails"] or run["rolling"] or run["task"] == "driven" or not Path("runs/a").exists():
            return
        # And what the journal says is what it would have said without a death, as far as the budget lasted.
        died, summary = lines(), summarize(RunFolder.find("a"))
        shutil.rmtree("runs")
        lived(asked, [], World(), lambda _: None)
        whole = lines()
    if run["limit"] and summary["uncommitted"]["calls"]:
        if died and died[-1]["kind"] == "probe":
            died.pop()  # the one at the end is where the end is
        assert died == whole[: len(died)]
    else:
        assert died == whole


def test_without_a_death_the_ledger_is_exact_and_nothing_is_uncommitted():
    world = World()
    done = lived(config(dying={"fails": 0.4, "seed": 3}, calls=60), [], world, lambda _: None)
    assert done["calls"] == world.calls <= 60
    assert done["uncommitted"] == {"calls": 0, "tokens": 0}


def test_what_a_chunk_in_flight_had_asked_is_shown_at_once_and_kept_for_ever(monkeypatch):
    world, seen = World(enough=4), []  # in the engine, with the second chunk
    mortal(monkeypatch, world)
    done = lived(config(), [None], world, seen.append)
    assert (seen[0]["status"], seen[0]["calls"], seen[0]["uncommitted"]["calls"]) == ("interrupted", 4, 4)
    assert done["calls"] == world.calls
    assert done["calls"] - done["uncommitted"]["calls"] == lines()[-1]["ledger"]["calls"] == 15
    assert done["uncommitted"]["calls"] in (2, 4)  # the first chunk had been saved, or its judge was not done yet


def test_a_first_batch_that_does_not_fit_any_more_ends_the_run_and_is_not_called_too_small(monkeypatch):
    world = World(enough=2)
    mortal(monkeypatch, world)
    done = lived(config(calls=5), [None], world, lambda _: None)
    assert (done["status"], done["reason"], done["batches"], done["calls"]) == ("finished", "calls", 0, 2)
    assert world.calls == 2


@pytest.mark.parametrize("limit", [{}, {"calls": 200}])
def test_an_episode_that_asks_for_more_than_its_brief_says_fails_alone_with_a_budget_and_without(limit):
    world = World()
    done = lived(config(mortal={"calls": 2, "promised": 1}, dying={"seed": 1}, **limit), [], world, lambda _: None)
    assert done["calls"] == world.calls == 15
    assert set(done["statuses"]) == {"exception", "ok"}  # those whose first answer was a number asked once
    failed = next(r for r in loop_kit.rollouts("a") if r["status"] == "exception")
    assert failed["artifacts"]["message"] == (
        "CallLimitError: the episode asks for call 2; its task's brief says max_calls = 1"
    )


def test_a_run_that_stops_at_such_episodes_asks_no_more_however_often_it_is_gone_on_with(monkeypatch):
    world = World()
    mortal(monkeypatch, world)
    asked = config(mortal={"calls": 9, "promised": 2}, calls=50, generations=99)
    lived(asked, [7, 9, 11, 13, 17, 19, 23], world, lambda _: None)
    assert world.calls <= 50


def test_where_nothing_can_be_noted_nothing_is_asked(monkeypatch):
    from coevo.runs import asked

    class Full(asked.AskedChunks):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._notes.close()
            self._notes = open("/dev/full", "ab", buffering=0)  # noqa: SIM115 - closed by its owner

    monkeypatch.setattr("coevo.runs.store.AskedChunks", Full)
    world = World()
    with pytest.raises(RunError, match=r"writing failed: .*No space left on device; go on with: coevo resume a"):
        coevo.run(config(), plugins(world))
    assert world.calls == 0


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"chunk": 1}', '{"place": "g0000-b00", "lost": ["x"]}'])
def test_a_changed_note_is_told_in_a_line(line):
    coevo.run(config(), plugins(World()))
    Path("runs/a/asked.jsonl").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(CheckFailedError, match=r"line 1 of 'runs/a/asked.jsonl' is no note of what was asked"):
        summarize(RunFolder.find("a"))


def test_a_torn_note_was_not_asked_and_a_run_from_before_there_were_notes_has_none(monkeypatch):
    world = World(enough=4)
    mortal(monkeypatch, world)
    world.live(None, lambda: coevo.run(config(), plugins(world)))
    notes = Path("runs/a/asked.jsonl")
    with notes.open("a") as file:
        file.write('{"chunk": 1, "ask')
    assert summarize(RunFolder.find("a"))["calls"] == 4
    notes.unlink()
    done = world.live(None, lambda: resume("a", plugins=plugins(world)))
    assert done["calls"] == 15


def test_the_notes_hold_one_batch(monkeypatch):
    coevo.run(config(generations=9), plugins(World()))
    first, *notes = [json.loads(line) for line in Path("runs/a/asked.jsonl").read_text("utf-8").splitlines()]
    assert first == {"place": "g0008-b00", "lost": [0, 0, 0]}
    assert notes == [{"chunk": i, "asks": [n, 0, 0]} for i, n in enumerate((2, 2, 1))]


def command(*arguments):
    kit = str(Path(__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "coevo", *arguments],
        env={**os.environ, "PYTHONPATH": kit}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_budget_holds_through_kill_minus_nine():
    seen, hang, budget = Path("seen"), Path("hang"), 100
    start = [
        "run", "--plugin", fakes.__file__, "--plugin", noting_engine.__file__, "--task", "aim", "--engine", "noting",
        "--context", "fixed", "--param", "es", "--calls", str(budget), "--generations", "99", "--name", "a", "--quiet",
        "--set", "es.population=4", "--set", "rollouts.chunk=4", "--set", "probe.every=0",
    ]  # fmt: skip
    for deaths, calls in enumerate((5, 21, 50)):
        hang.write_text(str(calls))
        process = command(*(["resume", "a"] if deaths else start))
        end = time.monotonic() + 120
        while not (seen.exists() and seen.read_text().count("\n") >= calls):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < end, "it was never asked so often"
            time.sleep(0.02)
        process.kill()
        process.communicate()
        shown = summarize(RunFolder.find("a"))
        assert shown["status"] == "interrupted"
        assert seen.read_text().count("\n") <= shown["calls"] <= budget
    hang.unlink()
    process = command("resume", "a")
    _, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    done = summarize(RunFolder.find("a"))
    assert (done["status"], done["reason"]) == ("finished", "calls")
    assert done["uncommitted"]["calls"] >= 3 * 2
    assert seen.read_text().count("\n") == done["calls"] <= budget
