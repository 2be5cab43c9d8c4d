"""Every run says whether its weights learn: in words, and in numbers that the journal gives."""

import re

import loop_kit
import pytest
from loop_kit import config, plugins

import coevo
from coevo.report.text import result, show
from coevo.runs.folder import RunFolder
from coevo.runs.verdict import learning
from coevo.runs.yardstick import Judge


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def line(kind, generation, *, ok=10, failed=0, objective=7.0, zero="", metrics=None, terms=True, outcomes=()):
    """A journal line as far as it is looked at; every valid answer has the same objective."""
    return {
        "kind": kind, "generation": generation, "batch": 0, "operator": "", "members": 4 if kind == "batch" else 0,
        "statuses": {"ok": ok, "syntax": failed}, "objectives": [objective] * ok, "best": None,
        "metrics": metrics or {}, "zero_update": zero, "ledger": {"calls": 10},
        "prompt_tokens": 0, "completion_tokens": 0, "time": {"seconds": 1.0},
        "outcomes": outcomes,
        "update": {"terms": [["0" * 16, 0.1]] if terms and not zero else []} if kind == "batch" else None,
    }  # fmt: skip


JUDGE = Judge("minimize", 7.0)


def verdict(*lines):
    return learning(lines, JUDGE, "a")["verdict"]


def test_a_centre_that_answers_better_is_said_to_get_better():
    said = verdict(
        line("probe", 0, ok=50, failed=50), line("batch", 0), line("probe", 1, ok=90, failed=10, objective=6.5)
    )
    assert said.startswith("the centre gets better: probe score 0.250 → 0.664 (± 0.033), ")
    assert "valid answers 50 % → 90 %, better than the baseline 0 % → 90 %; 1 of 1 updates moved the weights" in said


def test_a_centre_that_answers_worse_is_said_to_get_worse():
    said = verdict(line("probe", 0, ok=90, failed=10), line("batch", 0), line("probe", 1, ok=50, failed=50))
    assert said.startswith("the centre gets worse")


def test_a_change_within_two_standard_errors_is_none():
    said = verdict(line("probe", 0, ok=5, failed=5), line("batch", 0), line("probe", 1, ok=6, failed=4))
    assert said.startswith("no visible change")


def test_probes_are_compared_answer_by_answer():
    before = [6.0 + i / 10 for i in range(20)]
    after = [value - 0.05 for value in before]

    def probe(generation, outcomes):
        return {**line("probe", generation, ok=20), "objectives": outcomes, "outcomes": outcomes}

    said = verdict(probe(0, before), line("batch", 0), probe(1, after))
    assert said.startswith("the centre gets better: probe score ")
    spread = verdict(probe(0, before), line("batch", 0), {**probe(1, after), "outcomes": []})
    assert spread.startswith("no visible change")  # all that the answers differ by among themselves drowns it


def test_a_failure_has_its_place_among_the_answers_of_a_probe():
    assert JUDGE.in_order([7.0, None, 7.0]) == [0.5, 0.0, 0.5]
    assert Judge().in_order([7.0, None]) == []


def test_few_answers_cannot_tell():
    one = [{**line("probe", g, ok=1), "objectives": [o], "outcomes": [o]} for g, o in ((0, 7.0), (1, 6.0))]
    assert verdict(one[0], line("batch", 0), one[1]).startswith("1 answers cannot tell: probe score 0.500 → 0.976")


def test_a_run_without_probes_says_so():
    assert verdict(line("batch", 0)).startswith("not probed; 1 of 1 updates")
    assert verdict(line("probe", 0), line("batch", 0)).startswith("probed once so far; ")


def test_other_sizes_are_proposed_only_where_they_would_help():
    assert verdict(line("batch", 0, zero="all credits are equal")).endswith("because all credits are equal")


def test_updates_that_are_all_zero_say_why_and_what_to_do():
    lines = [line("batch", g, zero="sigma is 0") for g in range(3)]
    assert verdict(*lines) == (
        "the weights cannot learn like this: all 3 updates were zero, because sigma is 0; "
        "for sizes that can: coevo tune a"
    )
    assert "its only update was zero" in verdict(lines[0])


def test_members_that_differ_by_noise_only_are_pointed_out():
    noisy, clear = ({"variance_ratio": ratio} for ratio in (0.9, 2.5))
    assert "members of one batch hardly differ (variance ratio 0.90, 1 is noise)" in verdict(
        line("batch", 0, metrics=noisy)
    )
    assert "hardly" not in verdict(line("batch", 0, metrics=clear))


def test_without_weights_that_train_there_is_no_verdict():
    fixed = {**line("batch", 0), "members": 0}
    assert verdict(line("probe", 0), fixed, line("probe", 1)) == ""


def test_without_a_baseline_returns_count_and_without_either_valid_answers_do():
    lines = [line("probe", 0, ok=50, failed=50), line("batch", 0), line("probe", 1, ok=100)]
    as_return = learning(lines, Judge("maximize", None, 0.0), "a")["verdict"]
    assert "probe score 3.500 → 7.000" in as_return
    nothing = learning(lines, Judge("maximize"), "a")
    assert nothing["verdict"].startswith("the centre: valid answers 50 % → 100 %")
    assert nothing["probes"][0]["score"] is None


def test_the_numbers_are_of_the_batches_that_train():
    lines = [
        line("batch", 0, metrics={"moved": 0.5, "informative": 2.0, "members_scored": 4.0, "variance_ratio": 1.0}),
        line("batch", 1, metrics={"moved": 0.6, "informative": 4.0, "members_scored": 4.0, "variance_ratio": 3.0}),
    ]
    found = learning(lines, JUDGE, "a")
    assert (found["adapting_batches"], found["zero_updates"]) == (2, 0)
    assert (found["moved"], found["informative"], found["variance_ratio"]) == (0.6, 0.75, 2.0)


class RoundsAway(loop_kit.fakes.NumberEngine):
    def moved(self, perturbation):
        return 0.0006


class Plugin:
    @coevo.hookimpl
    def register_engines(self, engines):
        engines.register("rounds", RoundsAway)


def test_a_run_whose_sizes_are_rounded_away_says_so_at_its_end_and_in_show():
    summary = coevo.run(config(engine="rounds", es={"population": 4, "sigma": 1e-7}, probe={}), plugins(Plugin()))
    folder = RunFolder.find("a")
    assert summary["updates"] == 0
    assert summary["learning"]["zero_updates"] == 3
    for text in (result(summary, folder), show(summary, folder, folder.journal.history().told)):
        assert "the weights cannot learn like this: all 3 updates were zero" in text
        assert "the perturbation is rounded away: it changes 0.06 % of the served weights" in text
        assert "coevo tune a" in text


def test_show_tells_the_probes():
    summary = coevo.run(config(probe={"every": 1, "answers": 6}), plugins())
    folder = RunFolder.find("a")
    text = show(summary, folder, folder.journal.history().told)
    assert re.search("probe +updates +answers +valid +better +score", text)
    assert [p["updates"] for p in summary["learning"]["probes"]] == [0, 1, 2, 3]


def test_a_judge_compares_in_the_direction_of_the_problem():
    assert JUDGE.better([6.0, 7.0, 8.0], 4) == 0.25
    assert Judge("maximize", 7.0).better([6.0, 7.0, 8.0], 4) == 0.25
    assert JUDGE.credits([7.0], 2) == [0.5, 0.0]
    assert Judge("maximize", 7.0).credits([8.4], 1) == [1.0]
    assert JUDGE.better([7.00001], 1) == 0.0
    assert JUDGE.best([3.0, 2.0]) == 2.0
    assert Judge().better([1.0], 1) is None
