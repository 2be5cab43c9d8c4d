"""`coevo check` holds the seed against the problem's bound, by which a run stops candidates."""

import pytest

from coevo_heuristics.checking import Check

LINES = "\n\ndef bound(instance):\n    return {}\n"


def row(hall, text):
    """The row that speaks of a bound, of a problem whose bound is `text`; None where there is none."""
    file = hall / "evaluate.py"
    if text:
        file.write_text(file.read_text("utf-8") + LINES.format(text), "utf-8")
    for row in Check(hall, 2).rows():
        if "example" in row.name:
            return None  # the seeds have been looked at
        if "bound" in row.name:
            return row.name, row.state, row.found
    return None


def test_a_problem_without_a_bound_is_not_asked_for_one(hall):
    assert row(hall, "") is None


def test_a_bound_that_holds_is_told_with_the_seeds_objective(hall):
    name, state, said = row(hall, "1e6")
    assert (name, state) == ("expression: the seed and bound", "ok")
    assert "bound 1000000" in said
    assert "not beaten on any instance" in said


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("-1e6", "which is better; mend `bound` in evaluate.py"),
        ("None", "`bound` of evaluate.py raises for instance 0: it gave None; expected a number"),
        ("1e400 - 1e400", "gives nan for instance 0"),
    ],
)
def test_a_wrong_bound_fails_the_check(hall, bound, words):
    name, state, said = row(hall, bound)
    assert (name, state) == ("expression: the seed and bound", "failure")
    assert words in said
