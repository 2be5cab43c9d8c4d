import pytest

from coevo_eoh.population import Heuristic
from coevo_eoh.prompts import OPERATORS, render

GOOD = Heuristic("r1", -6.5, 6.5, "d_current - d_home", "Stay close to home.", "a", "1", "i1", ())
BAD = Heuristic("r2", -7.25, 7.25, "d_current", "", "b", "2", "i1", ())
FUNCTION = {
    "hole": "function",
    "signature": "def select(distances):",
    "prefill": "",
    "arguments": (("distances", "a numpy array"),),
}


def texts(kit, parents=(GOOD, BAD), show_objectives=True, **changes) -> dict[str, str]:
    brief = kit.make_brief(**changes)
    return {operator: render(brief, operator, parents, show_objectives) for operator in OPERATORS}


def test_an_expression_prompt_reads_like_this(kit):
    assert render(kit.make_brief(examples=("np.sqrt(d_home)", "d_current")), "m1", [GOOD]) == (
        "Visit all cities.\nShorter tours are better.\n\n"
        "You may use these names:\n- d_current: distance to here\n- d_home: distance to the start\n\n"
        "Write one line of Python that begins with 'score ='.\n"
        "Examples of such lines, with the objective that was reached (smaller is better):\n"
        "score = np.sqrt(d_home)\nscore = d_current\nscore = d_current - d_home  # 6.5\n\n"
        "Write one new line that changes a part of the last one. Answer with the line only."
    )


def test_a_function_prompt_reads_like_this(kit):
    assert render(kit.make_brief(**FUNCTION), "m2", [GOOD]) == (
        "Visit all cities.\nShorter tours are better.\n\n"
        "Write a Python function with exactly this signature:\n```python\ndef select(distances):\n```\n\n"
        "Arguments:\n- distances: a numpy array\n\n"
        "An algorithm tried so far (smaller objectives are better):\n\n"
        "Algorithm, objective 6.5:\n{Stay close to home.}\n```python\nd_current - d_home\n```\n\n"
        "Keep the structure of this algorithm. Find the numbers that decide how it behaves, and choose better "
        "ones.\n\n"
        "First state your idea in one sentence within braces, {like this}. Then give the complete function in one "
        "Python code block, with the imports that it needs. Write nothing else."
    )


@pytest.mark.parametrize("changes", [{}, FUNCTION])
def test_all_prompts_begin_with_the_same_task_text(kit, changes):
    rendered = texts(kit, **changes)
    shared = "Visit all cities.\nShorter tours are better.\n\n"
    assert all(text.startswith(shared) for text in rendered.values())
    assert len(set(rendered.values())) == len(OPERATORS)


def test_an_expression_prompt_shows_the_best_parent_last_with_its_objective_as_a_comment(kit):
    for text in texts(kit).values():
        assert "score = d_current  # 7.25\nscore = d_current - d_home  # 6.5\n\n" in text


def test_an_expression_prompt_tells_which_direction_is_better(kit):
    text = texts(kit, direction="maximize")["e1"]
    assert "Examples of such lines, with the objective that was reached (larger is better):\n" in text


def test_an_answer_that_brings_its_own_prefill_is_not_doubled(kit):
    own = Heuristic("r3", -6.0, 6.0, "score = d_home", "", "", "3", "i1", ())
    assert "score = score" not in render(kit.make_brief(), "m2", [own])


def test_an_example_that_is_the_parent_itself_is_shown_once(kit):
    assert render(kit.make_brief(examples=("d_current",)), "m1", [BAD]).count("score = d_current") == 1


def test_a_function_prompt_shows_thought_code_and_objective_of_each_parent(kit):
    for text in texts(kit, **FUNCTION).values():
        assert "Algorithm 1, objective 6.5:\n{Stay close to home.}\n```python\nd_current - d_home\n```" in text
        assert "Algorithm 2, objective 7.25:\n```python\nd_current\n```" in text


def test_a_maximising_function_prompt_says_that_larger_is_better(kit):
    assert "larger objectives are better" in texts(kit, **FUNCTION, direction="maximize")["e1"]


@pytest.mark.parametrize("changes", [{}, FUNCTION])
def test_objectives_can_be_left_out(kit, changes):
    for text in texts(kit, show_objectives=False, **changes).values():
        assert "6.5" not in text
        assert "7.25" not in text


def test_one_parent_is_spoken_of_as_one(kit):
    text = render(kit.make_brief(**FUNCTION), "e1", [GOOD])
    assert "Algorithm 1" not in text
    assert "these" not in text


def test_a_brief_without_arguments_has_no_empty_list(kit):
    for changes in ({}, FUNCTION):
        for text in texts(kit, **(changes | {"arguments": ()})).values():
            assert "\n\n\n" not in text
            assert "rguments" not in text


def test_braces_in_a_parents_code_survive(kit):
    odd = Heuristic("r4", -6.0, 6.0, "def f(x):\n    return {'a': '{0}'}[x]", "", "", "3", "i1", ())
    assert "{'a': '{0}'}" in render(kit.make_brief(**FUNCTION), "m1", [odd])
