"""`coevo bench sandbox --task`: what is timed, what is compared, and what a user gets wrong."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from coevo.cli import main
from coevo.errors import CheckFailedError, UserError
from coevo.sandbox import Evaluation, Evaluator
from coevo.tools.bench import evaluations, plain
from coevo.tools.bench.evaluations import AT_ONCE, bench_evaluations

TSP = Path(__file__).parents[2] / "tasks/coevo_heuristics/problems/tsp_construct"
PROBLEMS_PAGE = Path(__file__).parents[2] / "docs/problems.md"
FAKES = Path(__file__).parents[1] / "fakes.py"
FEW = {"instance_options": {"count": 3}}


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In an empty folder, where each side takes as little as it may."""
    monkeypatch.setattr(evaluations, "_SECONDS", 0.05)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COEVO_PLUGINS", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A problem folder of a user's, which a test may change."""
    copy = tmp_path / "my_tsp"
    shutil.copytree(TSP, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def test_one_and_sixteen_candidates_and_the_plain_evaluator_are_timed() -> None:
    found = bench_evaluations("tsp_construct", rounds=3, candidates=2, options={"tsp_construct": FEW})

    assert (found["task"], found["hole"], found["instances"]) == ("tsp_construct", "expression", 3)
    for name in ("ratio", "parallel_ratio"):
        assert 0 < found[f"{name}_min"] <= found[name] <= found[f"{name}_max"]
    rates = [found[f"{way}_per_second"] for way in ("one", "apart", "parallel", "plain")]
    assert all(0 < rate < 1e6 for rate in rates)
    assert found["plain"] == "all instances"


def test_the_hole_is_the_users_to_choose_and_gives_the_same_seed() -> None:
    results = [
        bench_evaluations("tsp_construct", 1, 1, {"tsp_construct": {**FEW, "hole": hole}})
        for hole in ("function", "expression")
    ]

    assert [result["hole"] for result in results] == ["function", "expression"]
    assert results[0]["objective"] == results[1]["objective"]


def test_every_evaluation_is_of_another_source_and_sixteen_are_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    honest = Evaluator.evaluate

    def watched(self: Evaluator, source: str) -> Evaluation:
        sources.append(source)
        return honest(self, source)

    monkeypatch.setattr(Evaluator, "evaluate", watched)
    found = bench_evaluations("tsp_construct", rounds=2, candidates=3, options={"tsp_construct": FEW})

    # The seed, a first sixteen to learn how long they take, and in each round three, three apart and sixteen.
    assert len(sources) == 1 + AT_ONCE + 2 * (3 + 3 + AT_ONCE)
    assert len(set(sources)) == len(sources)
    assert found["at_once"] == AT_ONCE


def test_options_of_the_task_limit_the_candidates_and_their_number(folder: Path) -> None:
    found = bench_evaluations(str(folder), 1, 1, {"heuristics": {**FEW, "workers": 2}})
    assert (found["task"], found["at_once"]) == ("tsp_construct", 2)

    (folder / "template_expression.py").write_text(
        (folder / "template_expression.py").read_text("utf-8") + "\nx = bytearray(100 << 20)\n", "utf-8"
    )
    with pytest.raises(UserError, match="the seed heuristic ends with out_of_memory"):
        bench_evaluations(str(folder), 1, 1, {"heuristics": {**FEW, "memory_mb": 50}})


def test_a_folder_without_a_plain_evaluator_is_timed_alone_and_told_how_to_add_one(folder: Path) -> None:
    (folder / "plain.py").unlink()
    found = bench_evaluations(str(folder), 1, 1, {"heuristics": FEW})

    assert found["one_per_second"] > 0
    assert "my_tsp/plain.py' with evaluate(function, instance) -> objective" in found["plain"]
    assert not {"ratio", "parallel_ratio", "plain_per_second"} & set(found)


def test_a_slow_plain_evaluator_gets_some_instances_and_its_time_is_scaled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "PATIENCE", 0.0)
    slow = "\n\ndef evaluate(function, instance):\n    time.sleep(0.3)\n    return honest(function, instance)\n"
    text = (folder / "plain.py").read_text("utf-8").replace("import numpy", "import time\n\nimport numpy")
    (folder / "plain.py").write_text(f"{text}\n\nhonest = evaluate{slow}", "utf-8")
    found = bench_evaluations(str(folder), 1, 1, {"heuristics": FEW})

    assert found["plain"] == "1 of 3, scaled"
    # Three instances take 0.9 s or more, the one that was timed 0.3 s.
    assert 0 < found["plain_per_second"] < 1 / 0.9


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("def evaluate(function, instance):\n    return 7.0\n", CheckFailedError, "instance 0: plain.py comes to 7.0"),
        ("def value(function, instance): ...\n", UserError, "defines no function 'evaluate'"),
        ("import nothing_like_this\n", UserError, "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_plain_evaluator_that_is_wrong_is_refused(folder: Path, text: str, error: type[Exception], said: str) -> None:
    (folder / "plain.py").write_text(text, "utf-8")
    with pytest.raises(error, match=said):
        bench_evaluations(str(folder), 1, 1, {"heuristics": FEW})


def test_the_plain_evaluator_of_the_docs_agrees_with_the_problem_of_the_docs() -> None:
    text = PROBLEMS_PAGE.read_text("utf-8")
    Path("one_machine").mkdir()
    for name, content in re.findall(r"^`one_machine/([\w.]+)`:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        Path("one_machine", name).write_text(content, "utf-8")
    (written,) = re.findall(r"`plain\.py` in the folder:\n\n```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    Path("one_machine", "plain.py").write_text(written, "utf-8")
    found = bench_evaluations("./one_machine", 1, 1)

    assert (found["task"], found["objective"], found["plain"]) == ("one_machine", 289.92812, "all instances")


def test_a_problem_whose_seed_fails_is_refused(folder: Path) -> None:
    template = folder / "template_expression.py"
    template.write_text(template.read_text("utf-8").replace("def score(d_current", "def score(d_curent"), "utf-8")
    with pytest.raises(UserError, match="the seed heuristic ends with exception: NameError"):
        bench_evaluations(str(folder), 1, 1, {"heuristics": FEW})


def test_a_task_without_programs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVO_TRUST", "1")
    shutil.copy(FAKES, "coevo_plugin.py")
    with pytest.raises(UserError, match="task 'aim' has no programs to evaluate"):
        bench_evaluations("aim")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--task", "tsp_constrct"], "no task named 'tsp_constrct'; did you mean 'tsp_construct'?"),
        (["--task", "./nowhere"], "no folder './nowhere' to read a problem from; for tasks by name see: coevo tasks"),
        (["--task", "."], "no problem in"),
        (["--task", "kp_construct", "--rounds", "0"], "--rounds got 0: it should be 1 or more"),
        (["--task", "kp_construct", "--set", "kp.hole=function"], "this bench takes options of its task"),
        (["--task", "kp_construct", "--set", "kp_construct.hol=function"], "did you mean 'hole'?"),
        (["--task", "kp_construct", "--set", "kp_construct=1"], "this bench takes options of its task"),
        (
            ["--task", "kp_construct", "--set", "kp_construct.instance_options.rules=paper"],
            "plain.py knows the rules 'fitting' alone, not 'paper'",
        ),
        (["--set", "kp_construct.hole=function"], "those are options of a task; name it with --task"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "sandbox", *arguments]) == 2
    printed, complained = capsys.readouterr()
    assert (printed, complained.count("\n")) == ("", 1)
    assert said in complained


def test_the_command_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--task", "kp_construct", "--rounds", "1", "--candidates", "1"]
    few += ["--set", "kp_construct.instance_options.count=2"]
    assert main(["bench", "sandbox", *few, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["instances"]) == ("kp_construct", 2)
    assert main(["bench", "sandbox", *few]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(found)
