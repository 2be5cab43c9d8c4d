"""`coevo check`: a good problem holds, and each fault of a folder is found and named."""

import json
import sys

import numpy as np
import pytest

from coevo.sandbox import Author
from coevo.sandbox.fingerprints import fingerprint, fingerprints
from coevo_heuristics.checking.static import check_references, check_splits, load_holes
from coevo_heuristics.problem import Problem

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
NOT_FINITE = '    if not np.isfinite(score).all():\n        raise FloatingPointError("a score is not finite")\n'


def bad(rows):
    """The rows that are not as they should be: name to state."""
    return {row.name: row.state for row in rows if row.state in ("failure", "warning")}


@linux
def test_a_good_problem_holds_and_every_candidate_has_its_status(hall, coevo):
    code, said, complaint = coevo("check", hall, "--json", "--workers", 2)
    assert (code, complaint) == (0, "")
    result = json.loads(said)
    assert result["holds"]
    assert bad_states(result) == {}
    status = {check["name"]: check["status"] for check in result["checks"]}
    for hole in ("expression", "function"):
        assert {
            name.removeprefix(f"{hole} that "): s for name, s in status.items() if name.startswith(f"{hole} th")
        } == {
            "raises an error": "exception",
            "never ends": "timeout",
            "takes twice the memory": "out_of_memory",
            "gives NaN": "non_finite",
            "gives None": "exception",
        }
    assert {name.removeprefix("solution "): s for name, s in status.items() if name.startswith("solution ")} == {
        "that is null": "invalid_solution",
        "that is empty": "ok",
        "without its second half": "ok",
        "that is 0, 1, 2 and so on": "invalid_solution",
        "with everything twice": "invalid_solution",
        "whose first number is -1": "invalid_solution",
        "whose numbers are 10**9": "invalid_solution",
    }
    timing = result["timing"]
    assert timing["workers"] == 2
    assert timing["seconds"] * timing["per_second"] == pytest.approx(1)
    assert 0 < timing["cpu_seconds"] < 1.5
    assert timing["per_second_parallel"] > 0


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("evaluate.py", "raise SystemExit(3)", "SystemExit"),
        ("evaluate.py", "def x(:", "SyntaxError"),
        ("problem.toml", "title = ", "is not valid TOML"),
        ("problem.toml", "", "is missing"),
    ],
)
def test_a_problem_that_cannot_be_looked_at_is_a_failure_in_json_too(hall, coevo, file, text, said):
    (hall / file).write_text(text)
    code, out, complaint = coevo("check", hall, "--json")
    result = json.loads(out)
    assert (code, complaint.count("\n"), result["holds"], result["timing"]) == (2, 1, False, None)
    assert [(row["state"], row["name"]) for row in result["checks"]] == [("failure", "the problem")]
    assert said in result["checks"][0]["found"]
    assert said in complaint
    assert coevo("check", hall) == (2, "", complaint)


def bad_states(result):
    return {check["name"]: check["state"] for check in result["checks"] if check["state"] != "ok"}


def test_the_text_has_a_row_each_and_a_verdict(hall, coevo):
    code, said, _ = coevo("check", hall)
    lines = said.splitlines()
    assert code == 0
    assert "ok       function that never ends: timeout: more than 1 s of CPU time" in lines
    assert "ok       expression: the seed: ok: objective 1692.29167, as highest_price should have" in lines
    assert lines[-2].startswith("one evaluation takes ")
    assert lines[-1] == "holds: 0 failed, 0 warnings"


@pytest.mark.parametrize(
    ("check", "forgery"),
    [
        ("len(set(solution)) != len(solution)", "solution with everything twice"),
        ("overlaps(instance)[np.ix_(solution, solution)].any()", "solution that is 0, 1, 2 and so on"),
    ],
)
def test_an_objective_that_does_not_check_enough_is_found(change, hall, coevo, check, forgery):
    change("evaluate.py", f"if {check}:", "if False:")
    code, said, _ = coevo("check", hall)
    assert code == 1
    (failure,) = (line for line in said.splitlines() if line.startswith("failure"))
    assert failure.startswith(f"failure  {forgery}: ok, expected invalid_solution: was accepted with objective ")
    assert failure.endswith("better than the seed's 1692.29167")
    assert said.splitlines()[-1] == "does not hold: 1 failed, 0 warnings"


def test_a_number_below_zero_that_passes_for_a_place_is_found(change, checked):
    change("evaluate.py", "all(0 <= one < size", "all(one < size")
    change("evaluate.py", "overlaps(instance)[np.ix_(solution, solution)].any()", "False")
    row = checked()["solution whose first number is -1"]
    assert (row.state, row.status) == ("warning", "ok")
    assert row.found.endswith("right only where such numbers are names and no places")


def test_nan_that_passes_for_an_answer_is_a_failure(change, checked):
    change("template.py", NOT_FINITE, "")
    rows = checked()
    assert bad(rows.values()) == {"expression that gives NaN": "failure"}
    assert rows["expression that gives NaN"].status == "ok"


def test_a_nan_that_is_refused_for_another_reason_is_a_warning(change, checked):
    change("evaluate.py", '            raise FloatingPointError(f"the choice is {answer}")', "            answer = -1")
    rows = checked()
    assert bad(rows.values()) == {"function that gives NaN": "warning"}
    assert rows["function that gives NaN"].status == "invalid_solution"


def test_a_problem_with_an_expression_alone_is_tried_too(hall, change, checked):
    text = (hall / "problem.toml").read_text()
    start, end = text.index("# A larger model"), text.index("# Objective values")
    (hall / "problem.toml").write_text(text[:start] + text[end:])
    rows = checked()
    assert bad(rows.values()) == {}
    assert rows["expression that never ends"].status == "timeout"
    assert not any(name.startswith("function") for name in rows)


def test_a_seed_that_fails_is_named_and_nothing_is_made_from_it(change, checked):
    change("template.py", "score = price  # one", "score = prices  # one")
    change("problem.toml", '"price  # one', '"prices  # one')
    rows = checked()
    assert rows["expression: the seed"].status == "exception"
    assert "name 'prices' is not defined" in rows["expression: the seed"].found
    assert rows["other candidates"].state == "skipped"


def test_a_solver_that_draws_anew_each_time_is_found(change, checked):
    anew = "    price = price * np.random.default_rng().random(price.size)\n"
    change("evaluate.py", "    waiting, accepted = np", f"{anew}    waiting, accepted = np")
    rows = checked(to="raises an error")
    assert rows["expression: the seed again"].state == "failure"
    assert "fixed seed" in rows["expression: the seed again"].found


def test_an_example_that_gives_the_answer_away_is_a_warning_and_a_broken_one_a_failure(change, checked):
    change("problem.toml", '"np.log(length) - lost"', '"price / (lost + 1)", "price +"')
    rows = checked(to="raises an error")
    assert bad(rows.values()) == {
        "expression: example 'price / (lost + 1)'": "warning",
        "expression: example 'price +'": "failure",
    }
    assert rows["expression: example 'price +'"].status == "syntax"


def test_a_reference_that_is_not_the_seeds_is_a_warning_and_too_slow_a_split_a_failure(change, checked):
    change("problem.toml", "value = 1692.29167", "value = 1692.5")
    change("problem.toml", "cpu_seconds = 1.5", "cpu_seconds = 1.5\nheld_out_cpu_seconds = { test = 0.1 }")
    change("evaluate.py", "for _ in range(count)", "for _ in range(1500 if split == 'test' else count)")
    rows = checked(to="the end")
    assert rows["function: the seed"].state == "warning"
    slow = rows["expression: the seed on split test"]
    assert (slow.state, slow.status) == ("failure", "timeout")
    assert "held_out_cpu_seconds" in slow.found


def test_a_proved_value_that_the_seed_beats_is_a_failure(change, checked):
    change("problem.toml", "value = 1833.375", "value = 1692.0")
    rows = checked(to="function: the seed")
    assert rows["expression: the seed"].state == "failure"
    assert rows["expression: the seed"].found.endswith("which is said to be proved")


# What needs no sandbox


def static(hall):
    problem = Problem(hall)
    _, holes = load_holes(problem)
    with Author(hall / "evaluate.py", None) as author:
        author.wait()
        return [*holes, *check_splits(problem, author), *check_references(problem, author)]


def test_a_template_without_marks_is_a_failure_and_the_rest_is_not_tried(change, hall, coevo):
    change("template.py", "# coevo: hole", "# a hole")
    change("template.py", "  # one expression", "")
    code, said, _ = coevo("check", hall)
    assert code == 1
    assert "failure  hole function: template 'hall/template.py' needs one line '# coevo: hole'" in said
    assert "failure  hole expression: template 'hall/template.py' holds 'price  # one expression' 0 times" in said
    assert "skipped  candidates" in said


@pytest.mark.parametrize(
    ("old", "new", "name", "part"),
    [
        ("np.random.RandomState(SEEDS[split])", "np.random.RandomState()", "split train", "differ between two calls"),
        ('"test": 3', '"test": 1', "splits train and test", "share 24 instances"),
        ('"test": 3', '"other": 3', "split test", "raised ValueError: there is no split 'test'"),
        ("    random = np", "    random = nope\n    random = np", "split test", "raised NameError"),
        ("    return found\n", "    return []\n", "split validation", "gives none"),
    ],
)
def test_a_fault_of_the_splits_is_found(change, hall, old, new, name, part):
    change("evaluate.py", old, new)
    assert any(row.state == "failure" and row.name == name and part in row.found for row in static(hall))


@pytest.mark.parametrize(
    ("old", "new", "name", "state", "part"),
    [
        ('test = "test"\n', "", "split test", "warning", "luck cannot be told from skill"),
        ('"maximize"', '"minimize"', "reference highest_price", "failure", "means that smaller is better"),
        ('split = "train"\nvalue = 18', 'split = "test9"\nvalue = 18', "reference optimum", "failure", "'test9'"),
        ("value = 1692.29167", "value = 0", "reference highest_price", "warning", "no scale"),
        ("baseline = true", "", "references", "warning", "cannot say what it has beaten"),
        ("proved = true", "", None, None, None),
    ],
)
def test_a_fault_of_the_table_is_found(change, hall, old, new, name, state, part):
    change("problem.toml", old, new)
    found = [row for row in static(hall) if row.state in ("failure", "warning")]
    if name is None:
        assert found == []
    else:
        assert any((row.name, row.state) == (name, state) and part in row.found for row in found), found


def test_an_unproved_baseline_above_all_others_makes_one_wonder_about_the_direction(change, hall):
    change("problem.toml", "proved = true", "")
    change("problem.toml", '"maximize"', '"minimize"')
    found = {row.name: row.found for row in static(hall) if row.state == "warning"}
    assert "is the direction right?" in found["reference highest_price"]


def test_instances_that_cannot_be_compared_are_no_fault(change, hall):
    change("evaluate.py", "np.array([start, start + length, price], float)", "(lambda: 1)")
    rows = {row.name: row for row in static(hall)}
    assert rows["split train"].state == "ok"
    assert rows["splits compared"].state == "skipped"


# The user's mistakes


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("nowhere", "no problem folder 'nowhere', and no problem of that name; expected one of: "),
        ("tsp_constrct", "did you mean 'tsp_construct'?"),
        (".", "no problem in '.': expected a folder with problem.toml"),
    ],
)
def test_a_folder_that_is_none_is_one_line(coevo, name, part):
    code, said, complaint = coevo("check", name)
    assert (code, said) == (2, "")
    assert part in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "part"),
    [
        ("problem.toml", "[splits]", "[splits", "problem.toml"),
        ("problem.toml", "direction =", "directoin =", "did you mean 'direction'?"),
        ("evaluate.py", "import math", "import maths", "cannot be imported: ModuleNotFoundError"),
        ("evaluate.py", "def objective", "def objectiv", "defines no function 'objective'"),
    ],
)
def test_files_that_cannot_be_read_are_one_line(change, hall, coevo, file, old, new, part):
    change(file, old, new)
    code, said, complaint = coevo("check", hall)
    assert (code, said) == (2, "")
    assert part in complaint
    assert complaint.count("\n") == 1


# Fingerprints


class Thing:
    def __init__(self, *values):
        self.values = values


def test_equal_instances_have_one_fingerprint_and_others_another():
    plain = [1, 1.0, True, "1", b"1", None, [1], (1,), {1}, {1: 2}, {1: [2]}, [[1], 2], [[1, 2]]]
    arrays = [np.arange(3), np.arange(3.0), np.arange(4).reshape(2, 2), np.arange(4), np.array([1, "a"], object)]
    values = [*plain, *arrays, np.float32(1), Thing(1), Thing(1, 2)]
    found = [fingerprint(value) for value in values]
    assert None not in found
    assert len(set(found)) == len(values)
    assert fingerprint({"a": 1, "b": np.arange(2)}) == fingerprint({"b": np.arange(2), "a": 1})
    assert fingerprint(Thing([1, 2])) == fingerprint(Thing([1, 2]))
    assert fingerprint(np.arange(6)[::2]) == fingerprint(np.array([0, 2, 4]))


def test_what_has_no_content_or_no_end_has_no_fingerprint():
    endless = []
    endless.append(endless)
    assert fingerprint(endless) is None
    assert fingerprint(len) is None
    assert fingerprint(object()) is None
    assert fingerprints([1, object()]) is None
    assert fingerprints([]) == []
