"""The best program of a run is judged once on splits that the search did not see, after the search is over."""

import json
import re
from pathlib import Path

import loop_kit
import pytest
import search_kit

import coevo
import coevo_eoh
import coevo_sample
from coevo.app.launch import resume
from coevo.errors import CheckFailedError, RunError
from coevo.records import Context, EpisodeResult, Example
from coevo.report import text
from coevo.reports import Best
from coevo.runs import holdout
from coevo.runs.folder import RunFolder
from coevo.runs.summary import summarize


class HeldOutEpisode(search_kit.TwiceEpisode):
    def __init__(self, task, split, context, calls):
        super().__init__(context, calls)
        self.task, self.split = task, split

    def result(self):
        result = super().result()
        self.task.judged.append((self.split, self.answer))
        if self.split == "test":
            if self.task.on_test == "fails":
                raise RunError("the sandbox is gone")
            return EpisodeResult("timeout", artifacts={"message": "too slow for a thousand"})
        if self.split == "validation":
            return EpisodeResult(
                "ok", result.return_ - 1.0, {"objective": float(self.answer) + 1.0}, {"instances": [1, 2]}
            )
        return result


class HeldOutTask(search_kit.NumbersTask):
    """Has other splits; the last one that was made is `made`."""

    made = None

    def __init__(self, *, calls: int = 1, on_test: str = "slow"):
        super().__init__(calls=calls)
        self.judged, self.on_test = [], on_test
        HeldOutTask.made = self

    def examples(self, split):
        if split not in ("train", "validation", "test"):
            raise ValueError(f"no split {split!r}")
        return [Example(split)]

    def episode(self, example, context):
        return HeldOutEpisode(self, example.id, context, self.calls)

    def best_files(self, rollout, header):
        return {"number.txt": f"{header}\n{rollout.artifacts['answer']}\n"}


class Choosing:
    """An episode of a wrapper that asks thrice, judges every answer and keeps one: the best, or where it says so."""

    def __init__(self, episode, keep):
        self.inner, self.keep, self.left, self.results = episode, keep, 3, []

    def requests(self):
        return [coevo.Request(({"role": "user", "content": f"{self.left} left"},))] if self.left else []

    def step(self, completions):
        self.left -= 1
        self.inner.answer = completions[0].text
        self.results.append(self.inner.result())

    def result(self):
        if self.keep == "an answer of its own":
            return EpisodeResult("ok", 0.0, {"objective": 0.0}, {"answer": "0", "code_key": "0"})
        valid = [r for r in self.results if r.return_ is not None]
        return max(valid, key=lambda r: r.return_) if valid else self.results[-1]


class ChoosingSample(coevo_sample.Sample):
    """Sample with that wrapper."""

    keep = "the best"

    def wrap(self, episode):
        return Choosing(episode, type(self).keep)


class Plugin:
    @coevo.hookimpl
    def register_tasks(self, tasks):
        tasks.register("held-out", HeldOutTask)

    @coevo.hookimpl
    def register_context_updaters(self, updaters):
        updaters.register("choosing", ChoosingSample)


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def played(name="a", task="held-out", context="sample", **changes):
    config = {
        "task": task, "engine": "counting", "param": "none", "context": context, context: {"batch": 4},
        "generations": 2, "name": name, "loggers": [], **changes,
    }  # fmt: skip
    return coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_sample, search_kit.Plugin(), Plugin()))


def best(name="a"):
    return json.loads(Path(f"runs/{name}/best/best.json").read_text("utf-8"))


@pytest.mark.parametrize("calls", [1, 2])
def test_the_best_answer_alone_is_judged_once_a_split_and_last_of_all(calls):
    summary = played(**{"held-out": {"calls": calls}})
    judged = HeldOutTask.made.judged
    assert [split for split, _ in judged[-2:]] == ["validation", "test"]
    assert {split for split, _ in judged[:-2]} == {"train"}
    assert {answer for _, answer in judged[-2:]} == {best()["answer"]}
    assert summary["best"]["splits"] == best()["splits"] == {
        "validation": {"status": "ok", "objective": float(best()["answer"]) + 1.0, "instances": 2},
        "test": {"status": "timeout", "message": "too slow for a thousand"},
    }  # fmt: skip


def test_what_a_context_updater_wraps_around_an_episode_does_not_choose_on_held_out_splits():
    summary = played(context="choosing", seed=5, **{"held-out": {"calls": 3}})
    judged = HeldOutTask.made.judged
    held_out = [(split, answer) for split, answer in judged if split != "train"]
    assert held_out == [("validation", best()["answer"]), ("test", best()["answer"])]
    assert summary["best"]["splits"]["validation"]["objective"] == float(best()["answer"]) + 1.0
    folder = RunFolder(Path("runs/a"))
    said = [step.text for step in holdout.find(folder, loop_best(folder)).trajectory.steps]
    assert len(said) == 3
    assert said[0] != best()["answer"], "else this would hold for whoever takes the first answer"


def test_a_kept_program_that_is_none_of_the_answers_is_not_judged_by_another(monkeypatch):
    monkeypatch.setattr(ChoosingSample, "keep", "an answer of its own")
    summary = played(context="choosing", **{"held-out": {"calls": 3}})
    assert summary["best"]["splits"]["test"]["status"] == "judge_error"
    assert "which of the answers the context updater kept cannot be told" in str(summary["best"]["splits"]["test"])
    assert {split for split, _ in HeldOutTask.made.judged} == {"train"}


def test_the_header_says_how_it_was_found_and_what_it_is_worth_elsewhere():
    played()
    written = Path("runs/a/best/number.txt").read_text("utf-8")
    found = best()
    assert f"generation {found['generation']}, batch 0, operator i1, rollout {found['rollout']}." in written
    assert "task held-out, param none, context sample, model smollm2-135m, seed 0" in written
    assert f"validation: objective {float(found['answer']) + 1:.6g} (2 instances)\n" in written
    assert "test: timeout: too slow for a thousand\n" in written


def test_a_split_that_cannot_be_judged_does_not_fail_a_search_that_is_over():
    summary = played(**{"held-out": {"on_test": "fails"}})
    assert summary["status"] == "finished"
    assert summary["best"]["splits"]["test"] == {
        "status": "judge_error", "message": "RunError: the sandbox is gone",
    }  # fmt: skip


def test_the_search_itself_is_the_same_with_and_without():
    played("a")
    played("b", judge_best=False)
    assert loop_kit.journal("a") == loop_kit.journal("b")
    assert "splits" not in best("b")
    assert {split for split, _ in HeldOutTask.made.judged} == {"train"}


def test_a_task_without_other_splits_and_one_that_is_no_program_search_have_none():
    assert played(task="numbers-task")["best"]["splits"] == {}
    config = loop_kit.config("b", param="none")
    del config["es"]
    summary = coevo.run(config, loop_kit.plugins())
    assert summary["best"]["splits"] == {}
    assert "splits" not in best("b")


def test_a_run_that_was_killed_while_its_best_was_judged_judges_it_when_resumed():
    played()
    kept = best().pop("splits")
    journal = Path("runs/a/journal.jsonl")
    *lines, stop = journal.read_text("utf-8").splitlines(keepends=True)
    assert json.loads(stop)["kind"] == "stop"
    journal.write_text("".join(lines), "utf-8")
    Path("runs/a/best/best.json").write_text(json.dumps({**best(), "splits": None}), "utf-8")
    summary = resume("a", plugins=loop_kit.plugins(coevo_eoh, coevo_sample, search_kit.Plugin(), Plugin()))
    assert (summary["status"], summary["best"]["splits"]) == ("finished", kept)
    assert [split for split, _ in HeldOutTask.made.judged] == ["validation", "test"]


def test_several_examples_are_one_verdict():
    results = [EpisodeResult("ok", -1.0, {"objective": 1.0}), EpisodeResult("ok", -2.0)]
    assert holdout._verdict(results) == {"status": "ok", "objective": -0.5, "instances": 0}
    assert holdout._verdict([*results, EpisodeResult("timeout")]) == {"status": "timeout", "message": ""}


def test_an_episode_that_asks_for_more_than_was_answered_cannot_be_judged():
    played()
    folder = RunFolder(Path("runs/a"))
    rollout = holdout.find(folder, loop_best(folder))
    task = HeldOutTask(calls=2)
    task.episode = lambda example, context: Endless(Context(), 99)
    assert holdout.judge(task, rollout)["validation"]["status"] == "judge_error"


class Endless(search_kit.TwiceEpisode):
    def requests(self):
        return [coevo.Request(({"role": "user", "content": "more"},))]


def loop_best(folder):
    return folder.journal.history().best


def test_a_best_rollout_that_is_gone_is_a_damaged_folder():
    played()
    with pytest.raises(CheckFailedError, match=r"rollout 'g9-b9-x' is not in .*the run's folder is damaged"):
        holdout.find(RunFolder(Path("runs/a")), Best("g9-b9-x", 9, 9, 1.0, 1.0))


def test_the_end_of_a_run_shows_it():
    played()
    folder = RunFolder(Path("runs/a"))
    shown = text.show(summarize(folder), folder, folder.journal.history().told)
    value = float(best()["answer"]) + 1.0
    assert re.search(r"^held out +validation (\S+) \(2 instances\); test timeout$", shown, re.MULTILINE)
    assert float(re.search(r"validation (\S+) ", shown)[1]) == pytest.approx(value, rel=1e-3)
