"""`coevo compare`: runs that are on disk, side by side."""

import json
from pathlib import Path

import pytest
from study_kit import STUDY

from coevo.study.compare import arrange

BASE = {"task": "aim", "param": "es", "context": "fixed", "generations": 2, "es": {"sigma": 0.3}, "loggers": []}


def configured(**runs):
    return {Path("runs", name): {**BASE, "name": name, **own} for name, own in runs.items()}


def test_runs_that_differ_by_seed_are_one_arm():
    frame, subjects = arrange(configured(**{"es-s0": {"seed": 0}, "es-s1": {"seed": 1}, "none": {"param": "none"}}))
    assert (frame.arms, frame.seeds) == (("es", "none"), (0, 1))
    assert [(s.arm, s.seed, str(s.path)) for s in subjects] == [
        ("es", 0, "runs/es-s0"), ("es", 1, "runs/es-s1"), ("none", 0, "runs/none")
    ]  # fmt: skip


def test_runs_of_one_name_that_differ_otherwise_are_not():
    frame, _ = arrange(configured(**{"es-s0": {"seed": 0}, "es-s1": {"seed": 1, "es": {"sigma": 0.1}}}))
    assert frame.arms == ("es", "es-s1")


def test_equal_runs_are_told_apart_by_name_or_place():
    twice = {Path(place, "es-s0"): {**BASE, "name": "es-s0", "seed": 0} for place in "abc"}
    assert arrange(twice)[0].arms == ("es", "es-s0", "c/es-s0")


def test_every_task_is_a_problem_with_arms_of_the_same_names():
    runs = configured(**{"a-s0": {}, "b-s0": {"task": "other", "param": "none"}})
    runs[Path("x/a-s0")] = {**BASE, "task": "other", "name": "a-s0"}
    frame, subjects = arrange(runs)
    assert [str(cell) for cell in frame.cells] == ["aim", "other"]
    assert [(str(s.cell), s.arm) for s in subjects] == [("aim", "a"), ("other", "b"), ("other", "a")]


def test_other_rules_and_other_folders_are_other_problems():
    runs = configured(
        **{
            "a-s0": {},
            "a-s1": {"seed": 1, "aim": {"rules": "paper"}},
            "p": {"task": "heuristics", "heuristics": {"folder": "x/cover"}},
            "q": {"task": "heuristics", "heuristics": {"folder": "y/cover", "cache": False}},
        }
    )
    assert [str(cell) for cell in arrange(runs)[0].cells] == ["aim", "aim 2", "cover", "cover 2"]


def test_runs_of_any_names_that_differ_by_seed_only_are_one_arm():
    frame, subjects = arrange(configured(x1={"seed": 1}, x2={"seed": 2}))
    assert frame.arms == ("x1",)
    assert [s.seed for s in subjects] == [1, 2]


@pytest.fixture
def runs(coevo, small):
    assert coevo("study", small, "--quiet")[0] == 0
    return ["small/none+fixed-s1", "small/none+fixed-s3", "runs/small/es+fixed-s1"]


def test_runs_are_compared_as_a_study_compares_them(drawn, coevo, runs):
    code, out, said = coevo("compare", *runs, "--json", "--out", "side/by")
    assert (code, said) == (0, "")
    result, study = json.loads(out), json.loads(Path("runs/small/study.json").read_text())
    assert result["seeds"] == [1, 3]
    of_study, of_runs = study["arms"]["none+fixed"], result["arms"]["none+fixed"]
    assert {**of_runs, "runs": sorted(of_runs["runs"], key=lambda run: -run["seed"])} == of_study
    assert result["arms"]["es+fixed"]["runs"] == [study["arms"]["es+fixed"]["runs"][1]]
    assert result == json.loads(Path("side/by/compare.json").read_text())
    assert {path.name for path in Path("side/by").iterdir()} == {
        "compare.json", "compare.html", "curves.svg", "curves.png", "table.md"
    }  # fmt: skip
    shown = coevo("compare", *runs)[1]
    assert shown.startswith("comparison: 3 of 3 runs finished")
    assert "none+fixed  2 of 2" in shown


def test_mistakes_are_one_line(coevo, runs):
    for arguments, expected in [
        ((runs[0], f"runs/{runs[0]}"), "is named twice"),
        (("nowhere",), "nowhere"),
        ((runs[0], "--out", "small.toml/x"), "'small.toml/x': Not a directory; choose another with --out"),
        ((), "missing argument 'RUN...'"),
    ]:  # fmt: skip
        code, out, said = coevo("compare", *arguments)
        assert (code in (1, 2), out, said.count("\n")) == (True, "", 1)
        assert expected in said


def test_a_run_that_was_cut_counts_in_no_mean(coevo, runs):
    journal = Path("runs/small/none+fixed-s3/journal.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))
    arm = json.loads(coevo("compare", *runs, "--json")[1])["arms"]["none+fixed"]
    assert (arm["finished"], arm["best"]) == (1, arm["runs"][0]["best"])
    assert "none+fixed-s3: interrupted" in coevo("compare", *runs)[1]


def test_studies_may_hold_one_seed_only(coevo):
    Path("one.toml").write_text(STUDY.replace("[3, 1]", "[3]"))
    result = json.loads(coevo("study", "one.toml", "--json", "--quiet")[1])
    arm = result["arms"]["es+fixed"]
    assert (arm["spread"]["best"], arm["interval"]["best"]) == (None, None)
