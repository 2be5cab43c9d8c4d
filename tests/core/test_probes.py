"""Probes: the centre answers the same question again and again, and nothing else of the run changes."""

import dataclasses
from pathlib import Path

import fakes
import pytest
from loop_kit import config, journal, plugins, rollouts

import coevo
from coevo.app.launch import resume
from coevo.errors import UserError
from coevo.runs.chunks import read_chunks
from coevo.runs.folder import RunFolder
from coevo.runs.yardstick import Judge, points


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def probes(name="a"):
    return [line for line in journal(name) if line["kind"] == "probe"]


def places(name="a"):
    return [(line["generation"], line["batch"]) for line in probes(name)]


def probed(name="a"):
    files = sorted(RunFolder.find(name).path.joinpath("rollouts").glob("*-probe*"))
    return [[r for chunk in read_chunks(file) for r in chunk] for file in files]


@pytest.mark.parametrize(
    ("every", "generations", "expected"),
    [(0, 3, []), (1, 2, [(0, 0), (1, 0), (2, 0)]), (2, 3, [(0, 0), (2, 0), (3, 0)]), (9, 2, [(0, 0), (2, 0)])],
)
def test_a_probe_comes_before_every_kth_generation_and_at_the_end(every, generations, expected):
    coevo.run(config(generations=generations, probe={"every": every, "answers": 6}), plugins())
    assert places() == expected


def test_every_fifth_generation_is_probed_where_weights_are_trained_and_none_where_not():
    coevo.run(config("es", generations=6, probe={}), plugins())
    assert places("es") == [(0, 0), (5, 0), (6, 0)]
    fixed = {key: value for key, value in config("none", param="none", probe={}).items() if key != "es"}
    coevo.run(fixed, plugins())
    assert places("none") == []


@pytest.mark.parametrize(("budget", "probed"), [({"calls": 503}, 0), ({"calls": 504}, 2), ({"tokens": 400}, 0)])
def test_probes_that_nobody_asked_for_are_left_out_where_a_budget_is_small(budget, probed):
    coevo.run(config(probe={}, **budget), plugins())
    assert len(places()) == probed


def test_all_probes_ask_the_same_with_the_same_seeds():
    coevo.run(config(probe={"every": 1, "answers": 6}), plugins())
    asked = [
        [(r.provenance.sampling_seed, r.provenance.example, r.trajectory.steps[0].messages) for r in probe]
        for probe in probed()
    ]
    assert len(asked) == 4
    assert all(probe == asked[0] for probe in asked)
    assert len({asked[0][i][0] for i in range(6)}) == 6
    answers = [[r.trajectory.steps[0].text for r in probe] for probe in probed()]
    assert answers[0] != answers[-1]  # the weights moved


def test_a_probe_keeps_the_outcome_of_every_answer_in_its_place():
    coevo.run(config(probe={"every": 3, "answers": 6}), plugins())
    for asked, kept in zip(probed(), probes(), strict=True):
        assert kept["outcomes"] == [None if r.return_ is None else r.metrics["objective"] for r in asked]


def test_frozen_weights_answer_every_probe_alike():
    frozen = {"population": 8, "sigma": 0.0}
    coevo.run(config(es=frozen, probe={"every": 1, "answers": 6}), plugins())
    first, *others = [[(r.status, r.return_, r.trajectory) for r in probe] for probe in probed()]
    assert all(other == first for other in others)


def test_probing_changes_nothing_of_the_run_but_what_it_spends():
    coevo.run(config("with", probe={"every": 1, "answers": 6}), plugins())
    coevo.run(config("without"), plugins())

    def learned(name):
        return [(b["update"], b["digest"], b["objectives"], b["best"]) for b in journal(name) if b["kind"] == "batch"]

    assert learned("with") == learned("without")
    searched = [r for r in rollouts("with") if r["provenance"]["purpose"] == "search"]
    assert searched == rollouts("without")


def test_answers_are_spread_over_the_examples():
    coevo.run(config("two", probe={"every": 3, "answers": 2}), plugins())
    assert [r.provenance.example for r in probed("two")[0]] == ["0", "1"]
    coevo.run(config("seven", probe={"every": 3, "answers": 7}), plugins())
    assert [r.provenance.example for r in probed("seven")[0]] == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.parametrize("calls", [20, 21, 26, 59, 60, 66, 100, 107, 108, 160, 186])
def test_a_budget_keeps_room_for_the_last_probe(calls):
    done = coevo.run(config(calls=calls, probe={"every": 1, "answers": 6}), plugins())
    assert done["calls"] <= calls
    committed = [line for line in journal("a") if line["kind"] != "stop"]
    assert committed[-1]["kind"] == "probe"


def test_a_budget_too_small_for_a_batch_and_the_last_probe_is_refused():
    with pytest.raises(UserError, match=r"asks for 6 answers and 6 more at the end \(probe.every = 0"):
        coevo.run(config(calls=11, probe={"every": 1, "answers": 6}), plugins())
    assert not Path("runs/a").exists()


def test_a_budget_without_room_for_a_population_beside_the_last_probe_is_refused():
    with pytest.raises(UserError, match="asks for 6 answers, and 8 members ask for 8 at least"):
        coevo.run(config(calls=19, probe={"every": 1, "answers": 6}), plugins())


class Watch:
    def __init__(self, stop_after=99):
        self.probes, self.batches, self.stop_after = [], [], stop_after

    @coevo.hookimpl
    def probe_finished(self, report):
        self.probes.append(report)
        if len(self.probes) == self.stop_after:
            raise KeyboardInterrupt

    @coevo.hookimpl
    def batch_finished(self, report):
        self.batches.append(report)

    @coevo.hookimpl
    def generation_finished(self, report):
        assert all(batch.purpose == "search" for batch in report.batches)


def test_observers_hear_of_probes_apart_from_batches():
    watch = Watch()
    coevo.run(config(probe={"every": 2, "answers": 6}), plugins(watch))
    assert [report.purpose for report in watch.probes] == ["probe"] * 3
    assert len(watch.batches) == 6
    assert {report.purpose for report in watch.batches} == {"search"}


@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_probe_that_is_committed_is_not_asked_again(after):
    same = {"probe": {"every": 1, "answers": 6}}
    coevo.run(config("whole", **same), plugins())
    with pytest.raises(coevo.errors.RunInterrupted):
        coevo.run(config("cut", **same), plugins(Watch(stop_after=after)))
    resume("cut", plugins=plugins())
    assert [line for line in journal("cut") if line["kind"] != "stop"] == [
        line for line in journal("whole") if line["kind"] != "stop"
    ]


def test_the_id_of_a_probes_rollout_is_no_other_rollouts():
    coevo.run(config(probe={"every": 1, "answers": 6}), plugins())
    ids = [r.id for probe in probed() for r in probe]
    assert ids[0] == "g0-b0-probe-c0-0-s0"
    centre = [dataclasses.replace(r.provenance, purpose="search") for probe in probed() for r in probe]
    assert len(set(ids)) == len(ids) == len(centre)


def test_points_tell_what_the_probes_and_batches_were():
    coevo.run(config(generations=4, probe={"every": 2, "answers": 6}), plugins())
    folder = RunFolder.find("a")
    lines = [line for line in folder.journal.lines() if line["kind"] in ("batch", "probe")]
    batches, asked = points(lines, Judge.of(folder.info()))
    assert [(p.generation, p.updates) for p in asked] == [(0, 0), (2, 2), (4, 4)]
    assert [b.calls for b in batches] == sorted(b.calls for b in batches)
    assert asked[-1].score > asked[0].score
    assert all(0.0 <= p.better <= p.valid <= 1.0 for p in [*asked, *batches])


def test_common_random_numbers_in_a_zip_batch_give_all_members_the_same_seeds():
    class Zipped(fakes.FixedContext):
        def ask(self):
            batch = super().ask()
            return None if batch is None else dataclasses.replace(batch, pairing="zip", samples=1)

    class Plugin:
        @coevo.hookimpl
        def register_context_updaters(self, updaters):
            updaters.register("zipped", Zipped)

    def seeds(name, common):
        es = {"population": 4, "answers": 3, "sigma": 0.3, "common_random_numbers": common}
        coevo.run(config(name, context="zipped", es=es, generations=1), plugins(Plugin()))
        found = {}
        for r in rollouts(name):
            p = r["provenance"]
            if p["member"] is not None:
                found.setdefault(p["member"], []).append((p["example"], p["sampling_seed"]))
        return list(found.values())

    common = seeds("common", True)
    assert all(member == common[0] for member in common)
    assert len(set(common[0])) == len(common[0]) == 9
    own = seeds("own", None)
    assert len({seed for member in own for _, seed in member}) == 4 * 9
