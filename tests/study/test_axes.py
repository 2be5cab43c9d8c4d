"""A study over problems and budgets: every arm in every cell, compared within it."""

import json
import re
from pathlib import Path

import pytest
from study_kit import STUDY

from coevo.runs.folder import RunFolder
from coevo.tools.study.plan import read_study

AXES = """
[problems.aim]
[problems.warm]
task = "aim"
sampling.temperature = 0.5

[budgets.few]
generations = 1
[budgets.more]
generations = 2
es.sigma = 0.2
"""


@pytest.fixture
def grid(small):
    Path(small).write_text(STUDY.replace("[3, 1]", "[3]") + AXES)
    return small


def configs(file):
    study, _ = read_study(Path(file))
    return {run.subject.label: run.config for run in study.runs}


def test_problems_budgets_and_arms_are_crossed_in_the_order_of_the_file(grid):
    assert list(configs(grid)) == [
        f"{problem}/{budget}/{arm}+fixed-s3"
        for problem in ("aim", "warm")
        for budget in ("few", "more")
        for arm in ("none", "es")
    ]


def test_a_cell_changes_what_base_says_and_an_arm_what_its_cell_says(grid):
    Path(grid).write_text(Path(grid).read_text().replace('param = "es"', 'param = "es"\nsampling.temperature = 0.7'))
    found = configs(grid)
    es, none = found["warm/more/es+fixed-s3"], found["warm/more/none+fixed-s3"]
    assert (es.task, es.generations, es.options["es"]) == ("aim", 2, {"population": 4, "sigma": 0.2})
    assert (es.sampling.temperature, none.sampling.temperature) == (0.7, 0.5)
    assert "es" not in none.options  # a budget's options are for the arms that use them
    assert found["aim/few/es+fixed-s3"].generations == 1


def test_cells_are_compared_each_by_itself_and_shown_in_one_table(drawn, coevo, grid):
    code, out, said = coevo("study", grid, "--json")
    assert code == 0, said
    result = json.loads(out)
    assert "arms" not in result
    assert [(cell["problem"], cell["budget"]) for cell in result["cells"]] == [
        ("aim", "few"), ("aim", "more"), ("warm", "few"), ("warm", "more")
    ]  # fmt: skip
    for cell in result["cells"]:
        none, es = cell["arms"]["none+fixed"], cell["arms"]["es+fixed"]
        folder = RunFolder(Path("runs/small", cell["problem"], cell["budget"], "es+fixed-s3"))
        assert es["runs"][0]["path"] == str(folder.path)
        assert es["best"] == es["best_of_seeds"] == folder.journal.history().best.objective
        assert es["updates"] == {"few": 1, "more": 2}[cell["budget"]]
        assert es["difference"]["best"] == {"seeds": 1, "mean": es["best"] - none["best"], "interval": None}
        assert none["difference"]["best"]["mean"] == 0.0
    assert [line.split(", ")[1] for line in said.splitlines() if ", starts" in line][:2] == [
        "aim/few/none+fixed-s3", "aim/few/es+fixed-s3"
    ]  # fmt: skip
    table = Path("runs/small/table.md").read_text()
    assert "| problem | budget | arm | runs | best, mean | spread | 95 % interval |" in table
    assert "| warm | more | es+fixed | 1 of 1 |" in table
    svg = Path("runs/small/curves.svg").read_text()
    assert all(f"{cell}: best so far" in svg for cell in ("aim/few", "warm/more"))
    assert coevo("study", grid, "--json") == (0, out, "")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[problems.warm]", '[problems."a/b"]', "the name of a problem got 'a/b': expected a name such as"),
        ("[problems.warm]", '[problems."table.md"]', "'table.md', which is a file of the study"),
        ("[problems.aim]", "[problems.aims]", "problem 'aims', budget 'few': "),
        ("[problems.aim]", "[problems.aim.fix]", "fix"),
        ("[budgets.few]", "[budgets.few.sample]", "budgets.few.sample: no arm uses 'sample'"),
        ("generations = 1\n", "generations = 0\n", "problem 'aim', budget 'few': "),
        ("generations = 1\n", "seed = 1\n", "budgets.few.seed is set by the study itself"),
        ("generations = 1\n", 'plugins = ["x.py"]\n', "budgets.few.plugins: plugin files are loaded once"),
    ],
)  # fmt: skip
def test_a_mistake_in_an_axis_is_one_line_that_names_it(coevo, grid, old, new, expected):
    text = Path(grid).read_text()
    assert old in text
    Path(grid).write_text(text.replace(old, new, 1))
    code, _, said = coevo("study", grid)
    assert (code, said.count("\n")) == (2, 1)
    assert expected in said
    assert not Path("runs").exists()


def test_an_axis_that_is_no_table_of_tables_says_what_it_should_be(coevo, small):
    Path(small).write_text(f"budgets = [100, 200]\n{STUDY}")
    assert 'budgets got [100, 200]: input should be a valid table; write [budgets."512"]' in coevo("study", small)[2]
    Path(small).write_text(f"problems = {{}}\n{STUDY}")
    assert re.search(r"problems got \{\}: table should have at least 1 item", coevo("study", small)[2])
