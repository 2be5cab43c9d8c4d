import re

import pytest

from coevo_heuristics import HeuristicTask, from_folder

BASELINE = 7.00437


def test_no_expression_in_the_brief_is_better_than_nearest_neighbour(expression_task: HeuristicTask) -> None:
    brief = expression_task.brief()
    shown = {*brief.examples, *re.findall(r"score = (.+)", brief.components["prompt"])}
    assert len(shown) == 3
    for expression in shown:
        result = expression_task.judge(f" {expression}", "train")
        assert result.status == "ok"
        assert result.metrics["objective"] >= BASELINE, expression


def test_the_expression_prompt_is_short_and_names_all_that_may_be_used(expression_task: HeuristicTask) -> None:
    brief = expression_task.brief()
    prompt = brief.components["prompt"]
    assert len(prompt) < 1200
    for name, meaning in brief.arguments:
        assert f"{name}: {meaning}" in prompt
    assert (brief.hole, brief.prefill, brief.stop, brief.max_new_tokens) == ("expression", "score =", ("\n", "#"), 24)
    assert not brief.prefill.endswith((" ", "\n"))


def test_the_function_prompt_shows_the_signature_and_no_code_to_copy(function_task: HeuristicTask) -> None:
    brief = function_task.brief()
    prompt = brief.components["prompt"]
    assert brief.signature in prompt
    assert "return unvisited_nodes" not in prompt
    assert "argmin" not in prompt
    assert (brief.hole, brief.prefill, brief.stop, brief.examples) == ("function", "", (), ())


def test_references_are_known_under_every_name_of_a_split(expression_task: HeuristicTask) -> None:
    brief = expression_task.brief()
    assert (brief.direction, brief.failure) == ("minimize", "below")
    assert [(r.name, r.value) for r in brief.references if r.split == "train" and r.baseline] == [
        ("nearest_neighbour", BASELINE)
    ]
    for short, long, best in (("validation", "validation50", 5.75466), ("test", "test50", 5.67556)):
        for split in (short, long):
            known, baseline = brief.best_known(split), brief.baseline(split)
            assert known is not None
            assert baseline is not None
            assert (known.name, known.value, baseline.name) == ("optimum", best, "nearest_neighbour")
    assert all(not r.proved for r in brief.references)


def test_references_of_the_full_set_do_not_speak_for_a_part_of_it(expression_task: HeuristicTask) -> None:
    part = from_folder(expression_task.problem.folder, instance_options={"count": 4})
    assert part.brief().references == ()


@pytest.mark.parametrize("hole", ["expression", "function"])
def test_the_brief_is_the_same_each_time(expression_task: HeuristicTask, hole: str) -> None:
    folder = expression_task.problem.folder
    assert from_folder(folder, hole=hole).brief() == from_folder(folder, hole=hole).brief()
