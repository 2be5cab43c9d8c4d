"""`coevo compare`: runs that are on disk, side by side."""

import json
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from study_kit import STUDY

from coevo.tools.study.compare import arrange

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
    assert frame.arms == ("es-s0", "es-s1")


def test_equal_runs_are_told_apart_by_name_or_place():
    twice = {Path(place, "es-s0"): {**BASE, "name": "es-s0", "seed": 0} for place in "abc"}
    assert arrange(twice)[0].arms == ("a/es", "b/es", "c/es")


def test_runs_of_one_name_are_told_apart_by_what_differs_in_their_paths():
    runs = {Path(place, "sample-s0"): {**BASE, "name": "sample-s0"} for place in ("runs/new/a", "runs/old/a")}
    assert arrange(runs)[0].arms == ("new/sample", "old/sample")
    nested = {Path(place, "sample-s0"): {**BASE, "name": "sample-s0"} for place in ("runs", "runs/old")}
    assert arrange(nested)[0].arms == ("sample", "old/sample")
    other = {path: {**own, "es": {"sigma": len(str(path))}} for path, own in runs.items()}
    assert arrange(other)[0].arms == ("new/sample", "old/sample")


def test_equal_runs_of_one_folder_stay_one_arm_in_whatever_order_they_come():
    runs = [Path(place, f"es-s{seed}") for place, seed in [("a", 0), ("b", 0), ("b", 1), ("a", 1)]]
    _, subjects = arrange({path: {**BASE, "name": path.name, "seed": int(path.name[-1])} for path in runs})
    assert [(s.arm, s.seed) for s in subjects] == [("a/es", 0), ("b/es", 0), ("b/es", 1), ("a/es", 1)]


@given(st.lists(st.tuples(*[st.sampled_from(["a", "b"])] * 2, st.integers(0, 2), st.integers(0, 1)), unique=True))
def test_every_run_has_a_place_of_its_own(runs):
    configs = {
        Path(*folders, f"es-s{seed}", str(sigma)): {**BASE, "name": f"es-s{seed}", "seed": seed, "es": {"sigma": sigma}}
        for *folders, seed, sigma in runs
    }
    _, subjects = arrange(configs)
    assert len({(s.arm, s.seed) for s in subjects}) == len(runs)


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
        ((runs[0], "--out", "small.toml/x"), "small.toml' is a file; choose another"),
        ((runs[0], "--out", "/proc/x"), "--out got '/proc/x', where nothing can be written: nothing can be made in"),
        ((), "missing argument 'RUN...'"),
    ]:  # fmt: skip
        code, out, said = coevo("compare", *arguments)
        assert (code, out, said.count("\n")) == (2, "", 1)
        assert expected in said


def test_a_run_that_was_cut_counts_in_no_mean(coevo, runs):
    journal = Path("runs/small/none+fixed-s3/journal.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))
    arm = json.loads(coevo("compare", *runs, "--json")[1])["arms"]["none+fixed"]
    assert (arm["finished"], arm["best"]) == (1, arm["runs"][0]["best"])
    code, out, said = coevo("compare", *runs)
    assert (code, said) == (0, "")
    assert "none+fixed-s3: interrupted" in out
    assert out.startswith("comparison: 2 of 3 runs finished; 192 calls, ")
    assert "Every run:" in out  # what has no part in a mean is shown by itself
    assert re.search(r"^none\+fixed-s3 +interrupted .* 42 ", out, re.MULTILINE)


def cut(run):
    journal = Path(run, "journal.jsonl")
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:-1]))


def test_an_arm_of_which_nothing_is_finished_is_compared_by_what_it_has_so_far(coevo, runs):
    for run in runs[:2]:
        cut(Path("runs", run))
    result = json.loads(coevo("compare", *runs, "--json")[1])
    arm = result["arms"]["none+fixed"]
    assert (arm["finished"], arm["so_far"], arm["calls"]) == (0, True, 42)
    assert arm["best"] == pytest.approx(sum(run["best"] for run in arm["runs"]) / 2)
    assert not result["arms"]["es+fixed"]["so_far"]
    assert result["calls"] == 192
    out = coevo("compare", *runs)[1]
    assert "none+fixed  0 of 2, so far  " in out


def test_a_damaged_run_is_shown_up_to_the_damage_and_marked_and_the_exit_code_is_1(coevo, runs):
    journal = Path("runs", runs[1], "journal.jsonl")
    *kept, last = journal.read_text().splitlines(keepends=True)
    batches = [i for i, line in enumerate(kept) if '"kind": "batch"' in line]
    kept[batches[-1]] = kept[batches[-1]].replace('"members": 0', '"members": 1')
    journal.write_text("".join([*kept, last]))
    code, out, said = coevo("compare", *runs)
    assert code == 1
    assert said == f"coevo: 1 run is damaged (runs/{runs[1]}); what is shown ends where the damage begins\n"
    assert re.search(r"^none\+fixed-s3 +damaged .* 30 ", out, re.MULTILINE)
    assert f"runs/{runs[1]}: damaged: batch 1 of generation 1" in out
    code, out, _ = coevo("compare", *runs, "--json")
    arm = json.loads(out)["arms"]["none+fixed"]
    assert (code, arm["finished"]) == (1, 1)
    assert [run["status"] for run in arm["runs"]] == ["finished", "damaged"]
    assert arm["runs"][1]["best"] is not None
    Path(runs[2], "run.json").write_text("[")
    code, out, said = coevo("compare", *runs, "--out", "side")
    assert (code, said.count("\n")) == (1, 1)
    assert "2 runs are damaged" in said
    assert "damaged" in Path("side/table.md").read_text()


def test_copies_of_a_run_have_names_of_their_own_in_every_table(coevo, runs):
    shutil.copytree(Path("runs", runs[0]), "copies/none+fixed-s1")
    shutil.copytree(Path("runs", runs[0]), "runs/other")
    given = (f"runs/{runs[0]}", "copies/none+fixed-s1", "other")
    result = json.loads(coevo("compare", *given, "--json")[1])
    names = [run["name"] for arm in result["arms"].values() for run in arm["runs"]]
    assert names == ["runs/small/none+fixed-s1", "copies/none+fixed-s1", "runs/none+fixed-s1"]


def test_files_of_rollouts_that_lack_what_the_journal_counts_are_damage(coevo, runs):
    file = next(Path("runs", runs[0], "rollouts").glob("g0001-b00.*"))
    whole = file.read_bytes()
    for left, held in ((whole[:-9], "0 whole rollouts of the"), (b"", "0 whole rollouts of the"), (whole * 2, "holds")):
        file.write_bytes(left)
        code, out, said = coevo("compare", *runs)
        assert (code, said.count("\n")) == (1, 1)
        assert re.search(rf"^runs/small/none\+fixed-s1: damaged: '{re.escape(str(file))}' .*{held}", out, re.MULTILINE)
    file.write_bytes(whole)
    assert coevo("compare", *runs)[0] == 0


def test_calls_that_a_kill_cut_off_are_left_out_and_it_is_said(coevo, runs):
    run = Path("runs", runs[0])
    lines = (run / "journal.jsonl").read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if '"kind": "batch"' in line)
    lost = json.loads(lines[last])
    (run / "journal.jsonl").write_text("".join(lines[:last]))
    place = f"g{lost['generation']:04d}-b{lost['batch']:02d}"
    note = {"place": place, "lost": [0, 0, 0]}
    (run / "asked.jsonl").write_text(json.dumps(note) + "\n" + json.dumps({"chunk": 0, "asks": [5, 10, 10]}) + "\n")
    (run / "rollouts" / f"{place}.jsonl.zst").unlink()
    told = "calls and tokens leave out 5 calls of batches that a kill cut off; coevo show counts them"
    assert told in coevo("compare", *runs)[1]
    assert "(5 cut off)" in coevo("show", f"runs/{runs[0]}")[1]
    result = json.loads(coevo("compare", *runs, "--json")[1])
    assert result["cut_off_calls"] == 5


def test_a_study_is_refused_with_one_of_its_runs_to_name(coevo, runs):
    for study in ("small", "runs/small"):
        code, out, said = coevo("compare", study)
        assert (code, out) == (2, "")
        assert said == (
            f"coevo: {study!r} is a study and no run; name one of its runs, such as runs/small/es+fixed-s1\n"
        )


def test_studies_may_hold_one_seed_only(coevo):
    Path("one.toml").write_text(STUDY.replace("[3, 1]", "[3]"))
    result = json.loads(coevo("study", "one.toml", "--json", "--quiet")[1])
    arm = result["arms"]["es+fixed"]
    assert (arm["spread"]["best"], arm["interval"]["best"]) == (None, None)
