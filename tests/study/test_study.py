"""`coevo study`: order, going on, comparison, and what it writes."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from study_kit import FAKES, STUDY

from coevo.numerics.objectives import written
from coevo.runs.folder import RunFolder
from coevo.tools.study import tables
from coevo.tools.study.results import HELD_OUT, NUMBERS, OF_WEIGHTS

PROGRAM = """
import json, sys
from coevo.cli import main
code = main(sys.argv[1:])
heavy = ("torch", "transformers", "numba", "safetensors", "matplotlib", "jinja2", "coevo.app.launch")
print(json.dumps([name for name in heavy if name in sys.modules]), file=sys.stderr)
sys.exit(code)
"""


def edited(old, new, path="small.toml"):
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new, 1))


def files(folder="runs/small"):
    """Every file of the runs with its content and time."""
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in sorted(Path(folder).rglob("*")) if p.is_file()}


@pytest.fixture
def done(coevo, small):
    code, out, said = coevo("study", small, "--json")
    assert code == 0, said
    return json.loads(out), said


def test_runs_go_seed_by_seed_through_all_arms(done):
    said = [line for line in done[1].splitlines() if ", starts" in line]
    names = [line.split(": ")[2].split(", ")[:2] for line in said]
    assert names == [
        ["run 1 of 4", "none+fixed-s3"],
        ["run 2 of 4", "es+fixed-s3"],
        ["run 3 of 4", "none+fixed-s1"],
        ["run 4 of 4", "es+fixed-s1"],
    ]
    assert re.search(r"elapsed, about 0:0\d left", said[1])
    assert "left" not in said[0]


def test_every_arm_is_an_ordinary_run_with_its_own_tables_only(coevo, done):
    none, es = (RunFolder(Path(f"runs/small/{arm}+fixed-s3")).config() for arm in ("none", "es"))
    assert "es" not in none
    assert none["seed"] == es["seed"] == 3
    assert es["es"] == {"population": 4, "sigma": 0.3}
    assert es["fixed"] == {"samples": 3}
    assert "fixed" not in none
    assert json.loads(coevo("show", "small/es+fixed-s3", "--json")[1])["status"] == "finished"


def test_the_json_has_every_number_of_every_run_and_their_means(done):
    result = done[0]
    assert set(result) == {"study", "file", "baseline_arm", "seeds", "references", "arms", "calls", "tokens", "seconds"}
    assert (result["study"], result["baseline_arm"], result["seeds"]) == ("small", "none+fixed", [3, 1])
    assert list(result["arms"]) == ["none+fixed", "es+fixed"]
    for name, arm in result["arms"].items():
        runs = arm["runs"]
        assert set(arm) == {
            *NUMBERS, "spread", "interval", "difference", "best_of_seeds", "valid_points", "finished", "so_far", "runs",
        }  # fmt: skip
        assert [(run["seed"], run["name"], run["status"]) for run in runs] == [
            (seed, f"{name}-s{seed}", "finished") for seed in (3, 1)
        ]
        for run in runs:
            assert set(run) == {*NUMBERS, "seed", "name", "path", "status", "message", "valid_points"}
            assert os.path.isfile(f"{run['path']}/journal.jsonl")
        for number in NUMBERS:
            known = [run[number] for run in runs if run[number] is not None]
            assert arm[number] == (pytest.approx(sum(known) / 2) if known else None)
        # AimTask's best is 0, to which there is no gap, and it is no program search: nothing is held out.
        unknown = {*OF_WEIGHTS, *HELD_OUT, "gap"}
        assert all(arm[number] is not None for number in NUMBERS if number not in unknown)
        assert arm["best_of_seeds"] == min(run["best"] for run in runs)
        assert arm["valid_rate"] == 1.0  # AimTask takes every number
    assert result["arms"]["none+fixed"]["updates"] == 0
    assert result["arms"]["es+fixed"]["updates"] == 2
    assert result == json.loads(Path("runs/small/study.json").read_text())


def test_numbers_of_a_run_are_those_of_its_last_probe(done):
    lines = list(RunFolder(Path("runs/small/es+fixed-s1")).journal.lines())
    probe = [line for line in lines if line["kind"] == "probe"][-1]
    run = done[0]["arms"]["es+fixed"]["runs"][1]
    better = sum(value < 3.5 / 3 - 1e-5 for value in probe["objectives"])
    assert run["better_rate"] == better / sum(probe["statuses"].values())
    assert run["valid_rate"] == probe["statuses"]["ok"] / sum(probe["statuses"].values())
    assert run["calls"] == probe["ledger"]["calls"]


def test_points_above_the_first_arm_are_of_the_same_seed(coevo, small):
    # Answers far from the target are failures, so that the weights make a difference.
    code = Path(FAKES).read_text()
    Path("strict.py").write_text(code.replace("if value > 50:", "if abs(value - TARGET[self.index]) > 1.0:"))
    edited(FAKES, "strict.py")
    edited("population = 4\nsigma = 0.3", "population = 16\nsigma = 0.5\nalpha = 0.5")
    result = json.loads(coevo("study", small, "--json")[1])
    none, es = (result["arms"][arm]["runs"] for arm in ("none+fixed", "es+fixed"))
    for first, second in zip(none, es, strict=True):
        assert first["valid_points"] == 0.0
        assert second["valid_points"] == pytest.approx(100.0 * (second["valid_rate"] - first["valid_rate"]))
    assert any(run["valid_points"] != 0.0 for run in es)
    assert result["arms"]["es+fixed"]["valid_points"] == pytest.approx(sum(run["valid_points"] for run in es) / 2)


def test_a_finished_study_is_read_and_touches_nothing(coevo, done, small):
    before = files()
    assert len(before) > 40
    code, out, said = coevo("study", small, "--json")
    assert (code, said) == (0, "")
    assert json.loads(out) == done[0]
    assert files() == before


def test_reading_a_finished_study_loads_no_model_library(done, small, tmp_path):
    read = subprocess.run(
        [sys.executable, "-c", PROGRAM, "study", small, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(read.stdout) == done[0]
    assert json.loads(read.stderr.splitlines()[-1]) == []


def test_the_table_says_the_same_as_text_and_as_markdown(coevo, done, small):
    code, out, _ = coevo("study", small)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("study small: 4 of 4 runs finished; ")
    assert lines[2] == "At the end of the runs (last probe), mean and each seed:"
    assert lines[3].split("  ")[0] == "arm"
    assert "points above none+fixed" in lines[3]
    assert lines[5].startswith("es+fixed    2 of 2  100.0 %  100.0 100.0   +0.0 +0.0")
    best = done[0]["arms"]["es+fixed"]["best_of_seeds"]
    assert written(best) in lines[10]
    page = Path("runs/small/table.md").read_text()
    assert page.startswith("## small\n\n4 of 4 runs finished; seeds 3, 1, in that order below.\n")
    assert "| es+fixed | 2 of 2 | 100.0 % | 100.0 100.0 | +0.0 +0.0 |" in page


def test_curves_and_a_page_of_their_own_are_drawn(drawn, done):
    folder = Path("runs/small")
    assert folder.joinpath("curves.png").read_bytes().startswith(b"\x89PNG")
    svg = folder.joinpath("curves.svg").read_text()
    assert "Valid answers of the probe: none+fixed from 100 % to 100 %" in svg
    page = folder.joinpath("study.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "4 of 4 runs finished" in page
    assert page.count("<svg") == 1
    assert "es+fixed-s1" in page
    assert "seeds = [3, 1]" in page
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")


def test_names_that_are_markup_stay_text(drawn, coevo, small):
    edited('[arms."es+fixed', '[arms."<b>es|x')
    edited("[3, 1]", "[3]")
    assert coevo("study", small, "--quiet")[0] == 0
    assert "&lt;b&gt;es|x-s3" in Path("runs/small/study.html").read_text()
    assert "<b>" not in Path("runs/small/study.html").read_text()
    assert "| <b>es\\|x | 1 of 1 |" in Path("runs/small/table.md").read_text()


def test_without_matplotlib_there_is_a_table(small):
    without = "import sys; sys.modules['matplotlib'] = None; from coevo.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", without, "study", small, "--quiet"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("study small: 4 of 4 runs finished")
    assert done.stderr == "coevo: note: no curves are drawn: matplotlib is not installed\n"
    assert Path("runs/small/table.md").exists()


def test_more_seeds_and_arms_are_added_to_what_is_there(coevo, done, small):
    edited("[3, 1]", "[3, 1, 2]")
    edited('[arms."es+fixed".fixed]', "[arms.late]\nparam = 'none'\n[arms.\"es+fixed\".fixed]")
    code, out, said = coevo("study", small, "--json")
    assert code == 0
    started = [line for line in said.splitlines() if ", starts" in line]
    assert [line.split(", ")[1] for line in started] == [
        "late-s3", "late-s1", "none+fixed-s2", "es+fixed-s2", "late-s2"
    ]  # fmt: skip
    assert len(json.loads(out)["arms"]["late"]["runs"]) == 3


def test_a_study_without_probes_has_null_for_what_is_not_known(coevo, small):
    edited("every = 1", "every = 0")
    code, out, _ = coevo("study", small, "--json")
    arm = json.loads(out)["arms"]["es+fixed"]
    assert code == 0
    assert [arm[name] for name in ("valid_rate", "better_rate", "score", "valid_points")] == [None] * 4
    assert arm["search_valid_rate"] == 1.0
    assert "At the end of the runs" not in coevo("study", small)[1]


def test_one_arm_and_no_name_are_enough(coevo):
    alone = STUDY.replace('name = "small"', "")
    Path("alone.toml").write_text(alone[: alone.index('[arms."es+fixed"]')].replace("[base.es]", "[arms.x.none]")
                                  .replace("population = 4\nsigma = 0.3", ""))  # fmt: skip
    assert coevo("study", "alone.toml", "--runs", "elsewhere/deep", "--quiet")[0] == 2  # arm x has no param none
    edited("[arms.x.none]", "", "alone.toml")
    assert coevo("study", "alone.toml", "--runs", "elsewhere/deep", "--quiet")[0] == 0
    assert Path("elsewhere/deep/alone/none+fixed-s1/journal.jsonl").exists()


def test_what_reached_the_served_weights_is_a_table_of_the_arms_that_say_so(coevo, small):
    result = json.loads(coevo("study", small, "--json", "--quiet")[1])
    assert "reached the served weights" not in tables.text(result)
    told = {"moved": 0.94, "cosine": 0.978, "cosine_run": 0.9993, "drift": 3.8e-4, "drifted": 0.29}
    result["arms"]["es+fixed"] |= told
    grid = tables.text(result).split("How much of the updates reached the served weights")[1]
    assert "es+fixed  " in grid
    assert "none+fixed" not in grid
    for number in ("94 %", "0.978", "0.9993", "0.00038", "29.0 %"):
        assert number in grid
