"""What a batch may ask for: the search and validation splits, each example once. Never the test split."""

import json
from pathlib import Path

import fakes
import loop_kit
import pytest

import coevo
from coevo.app.blueprint import Blueprint
from coevo.errors import PluginError, UserError
from coevo.host.config import build
from coevo.records import Batch, Context, EpisodeResult, Example
from coevo.tools.sizing.rehearsal import rehearse
from coevo.tools.tune.asking import Questions


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class SplitsTask(fakes.LettersTask):
    """Has all splits, the test split by two names, and notes which it was asked for."""

    asked: tuple = ()
    ids = ("1", "2")

    def examples(self, split):
        type(self).asked += (split,)
        if split not in ("train", "validation", "test", "test50"):
            raise ValueError(f"no split {split!r}; there are train,\nvalidation and test")
        return [Example(f"{split}-{i}") for i in self.ids]

    def episode(self, example, context):
        episode = fakes.AimEpisode(Example("0"), context)
        episode.result = lambda: EpisodeResult("ok", 1.0)
        return episode


class Asks(fakes.FixedContext):
    """Asks one batch, as it is told to."""

    batch: Batch

    def ask(self):
        self.position += 1
        return type(self).batch if self.position == 1 else None


class Plugin:
    @coevo.hookimpl
    def register_tasks(self, tasks):
        tasks.register("splits", SplitsTask)

    @coevo.hookimpl
    def register_context_updaters(self, updaters):
        updaters.register("asks", Asks)


def run(batch, monkeypatch, **changes):
    monkeypatch.setattr(Asks, "batch", batch, raising=False)
    monkeypatch.setattr(SplitsTask, "asked", ())
    return coevo.run(
        loop_kit.config(task="splits", context="asks", generations=1, **changes), loop_kit.plugins(Plugin())
    )


CONTEXT = (Context({"prompt": "say"}),)
TEST_SPLIT = "a batch asks for split {!r}; expected 'train' or 'validation': the test split is in no batch"


@pytest.mark.parametrize("split", ["test", "test50", "Test", "", "tset"])
@pytest.mark.parametrize(
    "how", [{}, {"adapt": False}, {"adapt": False, "purpose": "gate"}, {"adapt": False, "purpose": "probe"}], ids=str
)
def test_the_test_split_is_in_no_batch_whatever_its_purpose_and_name(split, how, monkeypatch):
    with pytest.raises(PluginError) as told:
        run(Batch(CONTEXT, split=split, **how), monkeypatch)
    assert str(told.value).startswith(TEST_SPLIT.format(split))
    assert "\n" not in str(told.value)
    assert SplitsTask.asked == ()  # not even loaded
    assert not Path("runs/a").exists()  # nothing was asked


def test_a_search_may_ask_for_the_search_and_validation_splits(monkeypatch):
    run(Batch(CONTEXT), monkeypatch)
    assert {r["provenance"]["example"] for r in loop_kit.rollouts("a")} == {"train-1", "train-2"}
    run(Batch(CONTEXT, split="validation", adapt=False, purpose="gate"), monkeypatch, name="b")
    assert {r["provenance"]["example"] for r in loop_kit.rollouts("b")} == {"validation-1", "validation-2"}


@pytest.mark.parametrize(
    ("examples", "told"),
    [
        (("train-3",), "a batch asks for example 'train-3', which split 'train' has not; did you mean 'train-"),
        (("train-1", "test-1"), "a batch asks for example 'test-1', which split 'train' has not"),
        (("train-1", "train-1"), "a batch asks 2 times for example 'train-1'; Batch.samples asks for more answers"),
        ((), "a batch asks for no example of split 'train'; None asks for all"),
    ],
)
def test_examples_are_asked_for_by_ids_that_exist_and_once(examples, told, monkeypatch):
    with pytest.raises(PluginError) as error:
        run(Batch(CONTEXT, examples=examples), monkeypatch)
    assert str(error.value).startswith(told)


def test_an_id_among_very_many_is_not_answered_with_all_of_them(monkeypatch):
    monkeypatch.setattr(SplitsTask, "ids", tuple(map(str, range(5000))))
    with pytest.raises(PluginError, match=r"which split 'train' has not; it has 5,000, such as 'train-0'$"):
        run(Batch(CONTEXT, examples=("x",)), monkeypatch)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (
            ("1", "2", "1"),
            "task 'splits': examples() gave two examples with the id 'train-1'; expected every id once",
        ),
        ((), "a batch asks for split 'train', in which the task has no examples"),
    ],
)
def test_a_task_has_examples_and_each_has_an_id_of_its_own(ids, told, monkeypatch):
    monkeypatch.setattr(SplitsTask, "ids", ids)
    with pytest.raises(PluginError) as error:
        run(Batch(CONTEXT), monkeypatch)
    assert str(error.value).startswith(told)


def test_a_split_that_the_task_has_not_is_told_in_the_words_of_the_task(monkeypatch):
    monkeypatch.setattr(Asks, "batch", Batch(CONTEXT, split="validation"), raising=False)
    with pytest.raises(
        PluginError, match=r"^a batch asks for split 'validation': .* no split 'validation'; there is 'tr"
    ):
        coevo.run(loop_kit.config(context="asks"), loop_kit.plugins(Plugin()))


def test_what_counts_rollouts_beforehand_and_what_tunes_do_not_load_it_either(monkeypatch):
    monkeypatch.setattr(Asks, "batch", Batch(CONTEXT, split="test"), raising=False)
    monkeypatch.setattr(SplitsTask, "asked", ())
    registries = loop_kit.plugins(Plugin()).registries()
    blueprint = Blueprint(build(loop_kit.config(task="splits", context="asks"), registries.names), registries)
    with pytest.raises(UserError, match="the test split is in no batch"):
        rehearse(blueprint, SplitsTask())
    assert SplitsTask.asked == ()
    Questions.of(SplitsTask(), SplitsTask().brief(), 4, 0, 4)
    assert SplitsTask.asked == ("train",)


def test_a_run_looks_at_the_test_split_only_when_its_search_is_over(monkeypatch):
    """Held-out judging reads it after the last batch; here the task is no program search, so nobody does."""
    run(Batch(CONTEXT), monkeypatch, probe={"every": 1, "answers": 2})
    assert set(SplitsTask.asked) == {"train"}
    assert "test" not in json.dumps(loop_kit.journal("a"))
