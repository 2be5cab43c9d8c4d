"""Sample spends a budget of calls to the last one: its last batch is as large as there is room for."""

import loop_kit
import pytest
import search_kit

import coevo
import coevo_eoh
import coevo_sample
from coevo.app.launch import resume
from coevo.errors import RunError, UserError
from coevo_sample import Sample


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    search_kit.CountingEngine.made.clear()


class Stops(search_kit.CountingEngine):
    """Dies like a killed process: after some leases nothing more happens in this process."""

    left = 10**9

    def lease(self, perturbation):
        type(self).left -= 1
        if type(self).left < 0:
            raise RunError("killed")
        return super().lease(perturbation)


class Plugin(search_kit.Plugin):
    @coevo.hookimpl
    def register_engines(self, engines):
        super().register_engines(engines)
        engines.register("stops", Stops)


def plugins():
    return loop_kit.plugins(coevo_eoh, coevo_sample, Plugin())


def config(name="a", batch=20, **changes):
    base = {"task": "numbers-task", "engine": "counting", "param": "none", "context": "sample", "generations": 1000,
            "name": name, "loggers": [], "probe": {"every": 0}, "sample": {"batch": batch}}  # fmt: skip
    return {**base, **changes}


def batches(name="a"):
    return [line["calls"] for line in loop_kit.journal(name) if line["kind"] == "batch"]


@pytest.mark.parametrize(
    ("calls", "batch", "sizes"),
    [(16, 20, [16]), (20, 20, [20]), (21, 20, [20, 1]), (500, 64, [64] * 7 + [52]), (1, 20, [1])],
)
def test_the_last_batch_takes_what_is_left(calls, batch, sizes):
    done = coevo.run(config(batch=batch, calls=calls), plugins())
    assert batches() == sizes
    assert (done["calls"], done["reason"]) == (calls, "calls")
    assert sum(engine.calls for engine in search_kit.CountingEngine.made) == calls


def test_generations_end_a_run_as_before_and_so_does_no_limit():
    assert coevo.run(config(generations=2, calls=50), plugins())["reason"] == "generations"
    assert batches() == [20, 20]
    coevo.run(config("b", generations=2), plugins())
    assert batches("b") == [20, 20]


def test_draws_do_not_depend_on_how_large_the_last_batch_was():
    coevo.run(config("short", calls=33), plugins())
    coevo.run(config("long", calls=40), plugins())
    short, long = loop_kit.rollouts("short"), loop_kit.rollouts("long")
    assert short == long[:33]


def test_the_probe_at_the_end_keeps_its_calls():
    done = coevo.run(config(calls=36, probe={"every": 1000, "answers": 3}), plugins())
    assert batches() == [20, 10]  # a probe of 3 before and one after
    assert done["calls"] == 36


@pytest.mark.parametrize(("calls", "answers"), [(33, [20, 13]), (22, [20, 2]), (23, [20, 3])])
def test_a_probe_that_has_no_room_beside_the_last_batch_is_left_out(calls, answers):
    done = coevo.run(config(calls=calls + 6, probe={"every": 1, "answers": 3}), plugins())
    kinds = [(line["kind"], line["calls"]) for line in loop_kit.journal("a") if line["kind"] in ("batch", "probe")]
    assert [size for kind, size in kinds if kind == "batch"] == answers
    assert kinds[-1] == ("probe", 3)
    assert done["calls"] == calls + 6


def test_an_episode_of_several_calls_counts_with_all_that_it_may_make():
    done = coevo.run(config(calls=41, **{"numbers-task": {"calls": 2}}), plugins())
    assert done["calls"] <= 41
    first, *others = [sum(line["statuses"].values()) for line in loop_kit.journal("a") if line["kind"] == "batch"]
    assert first == 20
    assert others[-1] < 20
    assert done["calls"] + 2 > 41


@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("probe", [{"every": 0}, {"every": 1, "answers": 3}], ids=["no probes", "probes"])
@pytest.mark.parametrize("limit", [{"calls": 33}, {"generations": 4}], ids=["a budget", "no budget"])
def test_a_run_that_dies_anywhere_and_is_resumed_equals_an_unbroken_one_as_far_as_its_budget_lasts(
    after, probe, limit, monkeypatch
):
    same = {"engine": "stops", "batch": 10, "rollouts": {"chunk": 4}, "probe": probe, **limit}
    coevo.run(config("whole", **same), plugins())
    monkeypatch.setattr(Stops, "left", after)
    with pytest.raises(RunError, match="killed"):
        coevo.run(config("cut", **same), plugins())
    monkeypatch.setattr(Stops, "left", 10**9)
    done = resume("cut", plugins=plugins())
    committed, whole = ([line for line in loop_kit.journal(n) if line["kind"] != "stop"] for n in ("cut", "whole"))
    if "calls" in limit:
        assert (
            done["calls"] == sum(line["calls"] for line in committed if "calls" in line) + done["uncommitted"]["calls"]
        )
        assert done["calls"] <= 33
    if "calls" in limit and done["uncommitted"]["calls"]:
        # What died was asked, and is missing at the end: for a batch, and perhaps for the probe after it.
        if committed[-1]["kind"] == "probe":
            committed.pop()
        assert committed == whole[: len(committed)]
    else:
        assert committed == whole
        assert loop_kit.rollouts("cut") == loop_kit.rollouts("whole")


def test_a_batch_that_trains_is_whole_or_refused_with_what_makes_it_smaller():
    es = {"param": "es", "es": {"population": 4, "answers": 2, "sigma": 0.3}}
    with pytest.raises(
        UserError, match=r"first batch, which asks for 8 answers \(4 members; --population N makes it sm"
    ):
        coevo.run(config(calls=7, **es), plugins())
    assert coevo.run(config(calls=15, **es), plugins())["calls"] == 8


def test_where_members_are_dealt_answers_their_number_is_the_parameter_updaters(kit):
    sample = Sample(services=kit.FakeServices(batch_answers=128, calls_left=5), brief=kit.make_brief())
    assert sample.ask().samples == 1
    alone = Sample(services=kit.FakeServices(calls_left=5), brief=kit.make_brief())
    assert alone.ask().samples == 5
