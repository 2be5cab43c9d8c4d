"""A budget of model calls is never exceeded by one, whatever a run repairs, probes and asks again.

The engine counts every request that it gets, those included that it then fails to answer.
"""

import json
import shutil
from pathlib import Path

import loop_kit
import numpy as np
import pytest
import search_kit
from hypothesis import given, settings
from hypothesis import strategies as st

import coevo
import coevo_eoh
import coevo_sample
from coevo.errors import RunError, UserError


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    search_kit.CountingEngine.made.clear()


def played(calls, *, context="eoh", engine=None, task_calls=1, param="es", retries=2, probe=0, **eoh):
    """Run within a budget; (calls that the engine counted, what the run says of itself or None)."""
    shutil.rmtree("runs", ignore_errors=True)
    options = {"population": 3, "initial_batches": 2, "repair": True, "show_failures": True, **eoh}
    config = {
        "task": "numbers-task", "numbers-task": {"calls": task_calls}, "engine": "counting", "counting": engine or {},
        "param": param, "context": context, "generations": 4, "calls": calls, "name": "a", "loggers": [],
        "probe": {"every": probe, "answers": 3}, "rollouts": {"chunk": 4, "retries": retries},
        **({"es": {"population": 4, "answers": 2, "sigma": 0.3}} if param == "es" else {}),
        **({"eoh": options} if context == "eoh" else {"sample": {"batch": 5}}),
    }  # fmt: skip
    summary = None
    try:
        summary = coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_sample, search_kit.Plugin()))
    except (UserError, RunError) as error:
        assert "too small" in str(error) or "engine_error" in str(error), error  # noqa: PT017 - a run may end so
    return sum(engine.calls for engine in search_kit.CountingEngine.made), summary


@given(
    calls=st.integers(1, 160),
    fails=st.sampled_from([0.0, 0.1, 0.4, 0.8]),
    seed=st.integers(0, 2**16),
    rolling=st.booleans(),
    task_calls=st.integers(1, 2),
    retries=st.integers(0, 3),
    probe=st.integers(0, 2),
    param=st.sampled_from(["es", "none"]),
    context=st.sampled_from(["eoh", "eoh", "sample"]),
    variant=st.sampled_from(["paper", "v0.2"]),
)
@settings(max_examples=60, deadline=None)
def test_no_run_asks_for_more_than_its_budget(
    calls, fails, seed, rolling, task_calls, retries, probe, param, context, variant
):
    search_kit.CountingEngine.made.clear()
    engine = {"fails": fails, "seed": seed, "rolling": rolling}
    options = {"variant": variant} if context == "eoh" else {}
    asked, summary = played(
        calls, context=context, engine=engine, task_calls=task_calls, param=param, retries=retries, probe=probe,
        **options,
    )  # fmt: skip
    assert asked <= calls
    if summary is not None:
        assert summary["calls"] == asked


def test_a_run_that_repairs_spends_its_budget_on_repairs_too():
    asked, summary = played(25, param="none", operators=["e1", "m1"])
    operators = [line["operator"] for line in loop_kit.journal("a") if line["kind"] == "batch"]
    assert summary["reason"] == "calls"
    assert asked == summary["calls"] <= 25
    assert any(name.endswith("/repair") for name in operators)


def test_what_an_engine_fails_of_is_asked_again_as_long_as_the_budget_lasts():
    # Of the two chunks of 5 draws one fails at first. With none to spare that is final; with 20 to spare all goes on.
    seed = next(s for s in range(99) if list(np.random.default_rng(s).random(3) < 0.5) == [True, False, False])
    journals = []
    for calls in (5, 25):
        search_kit.CountingEngine.made.clear()
        asked, _ = played(calls, context="sample", param="none", engine={"fails": 0.5, "seed": seed}, retries=9)
        assert asked <= calls
        journals.append(Path("runs/a/journal.jsonl").read_text(encoding="utf-8"))
    statuses = [json.loads(text.splitlines()[1]).get("statuses", {}) for text in journals]
    assert "engine_error" in statuses[0]
    assert "engine_error" not in statuses[1]
    assert json.loads(journals[1].splitlines()[1])["calls"] > 5


@pytest.mark.parametrize(
    ("context", "calls", "said"),
    [
        (
            "eoh",
            2,
            r"--calls is too small for the first batch, which asks for 3 answers \(eoh\.population makes it smaller\)",
        ),
        (
            "sample",
            3,
            r"asks for 5 answers \(sample\.batch makes it smaller\) and 3 more at the end \(probe\.every = 0",
        ),
    ],
)
def test_a_budget_too_small_for_the_first_batch_names_what_makes_it_smaller_and_starts_nothing(context, calls, said):
    config = {
        "task": "numbers-task", "engine": "counting", "param": "none", "context": context, "calls": calls, "name": "a",
        "loggers": [], "probe": {"every": 1 if context == "sample" else 0, "answers": 3},
        context: {"population": 3} if context == "eoh" else {"batch": 5},
    }  # fmt: skip
    with pytest.raises(UserError, match=said):
        coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_sample, search_kit.Plugin()))
    assert search_kit.CountingEngine.made == []
    assert not Path("runs").exists()
