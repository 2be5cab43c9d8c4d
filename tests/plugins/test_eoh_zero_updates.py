"""Batches from which the weights can learn nothing leave a zero update in the journal that says why."""

import loop_kit
import numpy as np
import pytest
import search_kit

import coevo
import coevo_eoh
import coevo_sample
from coevo.numerics.shaping import shape
from coevo_eoh.credit import FAILURE, WORSE

SHAPINGS = ("zscore", "centered_rank", "max_seeking", "none")


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def updates(context, shaping, always):
    config = {
        "task": "numbers-task", "engine": "counting", "counting": {"always": always}, "param": "es",
        "context": context, "generations": 2, "name": "a", "loggers": [], "probe": {"every": 0},
        "es": {"population": 4, "answers": 2, "sigma": 0.3, "shaping": shaping},
        **({"eoh": {"population": 2, "initial_batches": 1}} if context == "eoh" else {}),
    }  # fmt: skip
    coevo.run(config, loop_kit.plugins(coevo_eoh, coevo_sample, search_kit.Plugin()))
    return [line for line in loop_kit.journal("a") if line["kind"] == "batch" and line["adapt"]]


@pytest.mark.parametrize("shaping", SHAPINGS)
@pytest.mark.parametrize("context", ["eoh", "sample"])
@pytest.mark.parametrize(
    ("always", "reason"),
    [("broken", "all credits are equal: no answer was valid"), ("1.25", "all credits are equal")],
)
def test_a_batch_of_equal_or_of_invalid_answers_is_a_zero_update(context, shaping, always, reason):
    lines = updates(context, shaping, always)
    assert len(lines) == (4 if context == "eoh" else 2)
    assert {line["zero_update"] for line in lines} == {reason}
    assert all(line["update"]["terms"] == [] for line in lines)
    assert len({line["digest"] for line in lines}) == 1


@pytest.mark.parametrize("context", ["eoh", "sample"])
def test_answers_that_differ_move_the_weights(context):
    lines = updates(context, "max_seeking", "")
    assert all(line["update"]["terms"] for line in lines)
    assert not any(line["zero_update"] for line in lines)


def test_one_valid_answer_among_invalid_ones_is_above_all_of_them_whatever_it_is_worth():
    for shaping in SHAPINGS:
        shaped = shape(shaping, np.array([FAILURE, WORSE[0], FAILURE, FAILURE]))
        assert shaped[1] > 0 > shaped[0] == shaped[2] == shaped[3]
