"""What a plugin does on purpose falsifies nothing that is committed, hangs nothing, and is one line."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path

import fakes
import numpy as np
import pytest
from loop_kit import config, journal, plugins, rollouts
from stranger_kit import Stranger, contexts, engine, episode, policy, raises, start, task

import coevo
import coevo.numerics.credit
from coevo.errors import PluginError, RunError, UserError
from coevo.loop.agents import EngineFailedError
from coevo.records import Batch, Context, EpisodeResult, Step, Trajectory
from coevo.runs.folder import RunFolder


@pytest.fixture(autouse=True)
def _in_tmp(in_empty_folder):
    pass


def falsify(shown):
    """All that the ledger, the best or the journal could be made of."""
    for rollout in shown:
        for name, value in (("return_", 1e9), ("prompt_tokens", 10**9), ("status", "ok")):
            object.__setattr__(rollout, name, value)
        object.__setattr__(rollout.trajectory, "steps", rollout.trajectory.steps * 5)
        rollout.metrics["objective"] = -1e9
        rollout.artifacts["answer"] = "forged"


def falsify_buffer(self, buffer):
    falsify(buffer.rollouts)
    for name, value in (("operator", "forged"), ("purpose", "probe")):
        object.__setattr__(buffer.batch, name, value)
    for member in buffer.members:
        object.__setattr__(member, "sigma", 7.0)
    object.__setattr__(buffer, "rollouts", ())


def falsify_and_learn(self, buffer):
    credited = replace(coevo.numerics.credit.default_credit(buffer, "below"))
    falsify(buffer.rollouts)
    return replace(credited, batch=replace(credited.batch, operator="forged"))


class Observer:
    @coevo.hookimpl
    def rollouts_finished(self, rollouts):
        falsify(rollouts)


@pytest.mark.parametrize(
    "part",
    [contexts(tell=falsify_buffer), contexts(credit=falsify_and_learn), {"context_updaters": fakes.FixedContext}],
    ids=["tell", "credit", "an observer"],
)
def test_what_a_plugin_does_to_rollouts_that_it_is_shown_is_not_done_to_what_is_committed(part):
    whole = coevo.run({**config("whole"), "generations": 1}, plugins())
    observers = [Observer()] if part["context_updaters"] is fakes.FixedContext else []
    done = coevo.run({**config("a"), "context": "mine", "generations": 1}, plugins(Stranger(part), *observers))
    committed, honest = ([line for line in journal(name) if line["kind"] == "batch"] for name in ("a", "whole"))
    for line, other in zip(committed, honest, strict=True):
        for key in ("states", "previous"):  # what the updater has seen is its own, and each line names the one before
            del line[key], other[key]
        assert line == other
    assert (done["calls"], done["tokens"]) == (whole["calls"], whole["tokens"])
    best = [json.loads(Path(f"runs/{name}/best/best.json").read_text("utf-8")) for name in ("a", "whole")]
    assert best[0] == best[1]
    assert rollouts("a") == rollouts("whole")


CANCELLED = asyncio.CancelledError("mine")


async def cancelled(self, *arguments):
    raise CANCELLED


class CancelledLease:
    def __init__(self, *arguments):
        pass

    async def __aenter__(self):
        raise CANCELLED

    async def __aexit__(self, *error):
        return None


def test_an_engine_that_cancels_itself_loses_its_rollouts_and_hangs_nothing():
    with pytest.raises(RunError, match=r"every rollout of the batch failed with 'engine_error': .*Cancelled"):
        start(policy(cancelled))


def test_an_agent_that_cancels_itself_loses_its_rollouts_and_hangs_nothing():
    with pytest.raises(RunError, match=r"every rollout of the batch failed with 'judge_error': .*Cancelled"):
        start(task(run=cancelled))


def test_an_episode_that_cancels_itself_in_its_thread_loses_its_rollouts_and_hangs_nothing():
    with pytest.raises(RunError, match=r"every rollout of the batch failed with 'judge_error': .*Cancelled"):
        start(episode(result=raises(CANCELLED)))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (engine(lease=CancelledLease), r"engine 'mine': lease\(\) raised CancelledError: mine"),
        (contexts(tell=raises(CANCELLED)), r"context updater 'mine': tell\(\) raised CancelledError: mine"),
        (engine(lease=lambda self, p: Leaves()), r"engine 'mine': lease\(\) raised KeyError: 'gone'"),
    ],
    ids=["lease", "tell", "the end of a lease"],
)
def test_a_plugin_that_cancels_or_fails_outside_of_an_episode_is_one_line(part, said):
    with pytest.raises(PluginError, match=said):
        start(part)


class Leaves:
    async def __aenter__(self):
        return fakes.NumberPolicy(fakes.NumberEngine(), np.zeros(3), "mine")

    async def __aexit__(self, *error):
        raise KeyError("gone")


def test_an_engine_that_gives_more_tokens_than_it_was_asked_for_loses_only_that_rollout(capsys):
    async def too_many(self, requests):
        given = await fakes.NumberPolicy.complete(self, requests)
        return [
            replace(c, completion_ids=(3,) * 1000) if r.messages[-1]["content"].endswith("1") else c
            for r, c in zip(requests, given, strict=True)
        ]

    done = start(policy(too_many), tokens=2000)
    assert done["tokens"] <= 2000
    assert done["statuses"]["engine_error"] == done["statuses"]["ok"] / 2
    said = capsys.readouterr().err
    assert "engine 'mine' failed on rollout" in said
    assert "it gave 1,000 tokens for a request of at most 4 (max_new_tokens)" in said


def test_an_engine_that_reads_more_than_it_has_counted_loses_what_it_read():
    async def long_prompts(self, requests):
        return [replace(c, prompt_ids=(1,) * 500) for c in await fakes.NumberPolicy.complete(self, requests)]

    with pytest.raises(RunError, match=r"a prompt of 500 tokens where count_tokens\(\) had counted 3"):
        start(policy(long_prompts), tokens=2000)
    assert start(policy(long_prompts), name="b")["tokens"] > 2000  # without a limit all are counted as they are


def test_an_agent_of_an_engine_that_gives_too_many_tokens_cannot_hide_it():
    async def run(self, example, context, policy):
        try:
            await policy.complete([coevo.Request(({"role": "user", "content": "say 0"},))])
        except EngineFailedError:
            return EpisodeResult("ok", 1.0)
        raise AssertionError("no answer was refused")

    async def too_many(self, requests):
        return [replace(c, completion_ids=(3,) * 1000) for c in await fakes.NumberPolicy.complete(self, requests)]

    both = [Stranger(task(run=run)), Stranger(policy(too_many))]
    with pytest.raises(RunError, match=r"failed with 'engine_error': EngineFailedError: it gave 1,000 tokens"):
        coevo.run({**config(), "task": "mine", "engine": "mine", "generations": 1}, plugins(*both))


@pytest.mark.parametrize(
    ("steps", "error", "said"),
    [
        (
            (Step((), (), (), "stop", "x"),) * 99,
            RunError,
            r"gave 99 steps; its task's brief says max_calls = 1",
        ),
        (("x",), PluginError, r"run\(\) gave a trajectory whose steps are with 'x' at \[0\]; expected a coevo"),
    ],
)
def test_an_agent_cannot_write_more_calls_into_the_ledger_than_it_may_make(steps, error, said):
    async def run(self, example, context, policy):
        return EpisodeResult("ok", 1.0), Trajectory(steps)

    with pytest.raises(error, match=said):
        start(task(run=run))


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ((1,), r"a completion whose tokens are \(1,\); expected two"),
        ((-5, 2), r"a count of tokens of -5; expected a whole number of at least 0"),
        ("12", r"a completion whose tokens are '12'; expected a list"),
    ],
)
def test_tokens_that_are_no_counts_are_one_line(tokens, said):
    async def counts(self, requests):
        return [replace(c, tokens=tokens) for c in await fakes.NumberPolicy.complete(self, requests)]

    with pytest.raises(PluginError, match=said):
        start(policy(counts))


def test_a_budget_without_room_for_a_whole_population_is_refused_before_anything_runs():
    with pytest.raises(
        UserError, match=r"--calls is too small for a batch that trains: .* 400 members .*--population N"
    ):
        coevo.run(config(es={"population": 400}, calls=20), plugins())
    assert not Path("runs/a").exists()


def test_a_budget_that_ends_a_run_before_its_weights_learn_says_so_and_what_mends_it(capsys):
    done = coevo.run(config(calls=53), plugins())
    assert done["updates"] == 0
    assert capsys.readouterr().err == (
        "coevo: note: --calls is too small for the first batch that trains, which asks for 48 answers (8 members; "
        "--population N makes it smaller); the weights are as they were\n"
    )
    coevo.run(config("b", calls=54), plugins())
    assert capsys.readouterr().err == ""


def test_a_batch_that_asks_for_more_than_memory_holds_is_refused_before_it_is_planned():
    with pytest.raises(PluginError, match="a batch asks for 3,000,000 answers; expected at most 1,000,000"):
        start(contexts(ask=lambda self: Batch((Context({"prompt": "x"}),), samples=10**6, adapt=False)))


def test_a_return_that_no_float_holds_is_one_line():
    with pytest.raises(PluginError, match=r"result\(\) gave a return of 1000.*; expected a finite number"):
        start(episode(result=lambda self: EpisodeResult("ok", 10**400)))


@pytest.mark.parametrize("value", [np.float64(1.5), np.str_("a"), np.int64(3), np.bool_(True)])
def test_numbers_of_numpys_are_in_no_state(value):
    with pytest.raises(PluginError, match=r"state_dict\(\) gave a state with, at \['best'\], .* makes numpy's values"):
        start(contexts(state_dict=lambda self: {"best": value}))


def test_a_component_that_the_task_does_not_read_is_noted_once(capsys):
    def ask(self):
        asked = fakes.FixedContext.ask(self)
        return asked and replace(asked, contexts=(Context({"prompt": "say number", "promt": "x"}),))

    start(contexts(ask=ask))
    assert capsys.readouterr().err == (
        "coevo: note: the context has a component 'promt', which is not among the brief's components of the task, so "
        "that the model may never see it; did you mean 'prompt'?\n"
    )


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Batch(("say",)), r"a batch whose contexts are with 'say' at \[0\]; expected a coevo.Context"),
        (lambda: Batch("say"), r"a batch whose contexts are 'say'; expected a list, each a coevo.Context"),
        (lambda: Batch(Context({"prompt": "x"})), r"a batch whose contexts are Context.*; expected a list"),
        (lambda: Batch((Context({}, data=3),)), r"a context whose data is 3; expected a mapping"),
        (lambda: Batch((Context({}),), samples="3"), r"a batch whose samples are '3'; expected a whole number"),
    ],
)
def test_what_is_no_context_is_told_in_our_words(made, said):
    with pytest.raises(PluginError, match=said):
        start(contexts(ask=lambda self: made()))


@pytest.mark.parametrize("part", [engine(close=raises(KeyError("x"))), task(close=raises(KeyError("x")))])
def test_a_plugin_that_cannot_be_closed_does_not_hide_that_the_run_is_finished(part, capsys):
    assert start(part)["status"] == "finished"
    said = capsys.readouterr().err
    assert re.search(
        r"coevo: note: \w+ 'mine': close\(\) raised KeyError: 'x' .*; what was done before is kept\n", said
    )


def test_a_plugin_that_cannot_be_closed_does_not_hide_what_a_run_failed_of():
    part = engine(close=raises(KeyError("x")), apply=raises(RuntimeError("no memory")))
    with pytest.raises(PluginError, match=r"apply\(\) raised RuntimeError: no memory"):
        start(part)
    assert "no memory" in coevo.app.launch.summarize(RunFolder.find("a"))["message"]
