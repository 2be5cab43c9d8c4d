"""An answer that was stopped in a race is valid, has no return, and leaves open what nobody knows."""

import loop_kit

import coevo
from coevo.records import EXCLUDED, STATUSES, VALID, valid_share
from coevo.report.text import show
from coevo.runs.folder import RunFolder
from coevo.runs.yardstick import Judge, points


def test_outraced_is_valid_and_nobodys_fault():
    assert {"ok", "outraced"} == VALID < set(STATUSES)
    assert VALID.isdisjoint(EXCLUDED)


def test_what_was_outraced_counts_as_valid():
    assert valid_share({"ok": 1, "outraced": 2, "syntax": 1}) == 0.75
    assert valid_share({"syntax": 3}) == valid_share({}) == 0.0


def line(statuses, objectives):
    return {
        "kind": "batch", "generation": 0, "batch": 0, "operator": "e1", "members": 0, "statuses": statuses,
        "objectives": objectives, "best": None, "metrics": {}, "zero_update": "", "update": None,
        "ledger": {"calls": 4}, "prompt_tokens": 0, "completion_tokens": 0,
        "time": {"seconds": 1.0},
    }  # fmt: skip


def test_a_batch_with_outraced_answers_has_a_valid_rate_and_no_score():
    judge = Judge("minimize", 7.0)
    (raced, plain), _ = points([line({"ok": 1, "outraced": 2, "syntax": 1}, [6.0]), line({"ok": 4}, [6.0] * 4)], judge)

    assert (raced.valid, raced.better, raced.score, raced.best) == (0.75, None, None, 6.0)
    assert (plain.valid, plain.better) == (1.0, 1.0)
    assert plain.score is not None


def test_show_says_that_means_leave_out_what_was_outraced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = coevo.run(loop_kit.config(generations=1), loop_kit.plugins())
    folder = RunFolder.find("a")
    plain = folder.journal.history().batches
    raced = [{**batch, "statuses": {"ok": 5, "outraced": 1}} for batch in plain]
    assert show(summary, folder, raced).endswith(
        "\n\nmeans leave out 2 outraced answers, whose objectives nobody knows"
    )
    assert "outraced" not in show(summary, folder, plain)
