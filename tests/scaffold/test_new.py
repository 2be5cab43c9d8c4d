"""`coevo new`: what it writes works as it is, nothing is overwritten, and a bad name is one line."""

import ast
import json
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from coevo.host import discovery
from coevo.records import Batch, Buffer, Provenance, Rollout, Step, Trajectory
from coevo.sandbox.problem import load_problem
from coevo_heuristics import from_folder

FAKES = str(Path(__file__).parents[1] / "fakes.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def hall(coevo):
    """A problem folder as `coevo new problem` writes it."""
    code, said, complaints = coevo("new", "problem", "hall")
    assert (code, complaints) == (0, "")
    assert said.splitlines()[:3] == ["hall/problem.toml", "hall/evaluate.py", "hall/template.py"]
    return Path("hall")


def best_possible(instance):
    """The largest sum of prices, from the last start to the first: skip a request, or accept it."""
    start, end, price = instance
    later = {len(price): 0.0}
    order = np.argsort(start)
    for place in reversed(range(len(price))):
        request = order[place]
        free = np.searchsorted(start[order], end[request])
        later[place] = max(later[place + 1], price[request] + later[max(int(free), place + 1)])
    return later[0]


def test_a_new_problem_is_three_files_with_its_name_and_comments(hall):
    assert {path.name for path in hall.iterdir()} == {"problem.toml", "evaluate.py", "template.py"}
    text = (hall / "problem.toml").read_text()
    assert tomllib.loads(text)["name"] == "hall"
    assert "$" not in text
    assert all("# " in path.read_text() for path in hall.iterdir())
    for path in hall.glob("*.py"):
        ast.parse(path.read_text())


def test_the_optimum_in_it_is_what_another_dynamic_program_finds(hall):
    problem = load_problem(hall / "evaluate.py")
    found = np.mean([best_possible(instance) for instance in problem.instances("train")])
    optimum = next(r for r in from_folder(hall).brief().references if r.name == "optimum" and r.split == "train")
    assert round(float(found), 5) == optimum.value
    assert optimum.proved


@pytest.mark.parametrize("hole", ["expression", "function"])
def test_both_holes_of_it_take_answers_and_the_references_frame_them(hall, hole):
    task = from_folder(hall, hole=hole, workers=1)
    task.start()
    better = "price / (lost + 1)"
    if hole == "function":
        better = f"```python\ndef choose(price, length, lost):\n    return np.argmax({better})\n```"
    try:
        brief = task.brief()
        seed = task.judge(task.template.seed, "train").metrics["objective"]
        found = task.judge(better, "train").metrics["objective"]
        assert seed == brief.baseline().value < found < brief.best_known().value
    finally:
        task.close()


def test_a_run_finds_it_by_its_name(hall, coevo):
    Path("parrot.py").write_text(
        (ROOT / "tests/contracts/test_docs.py").read_text().split('PARROT = """')[1].split('"""')[0]
        .replace(" due + (due - (due - work))", " price / (lost + 1)")
    )  # fmt: skip
    fixed = ["--plugin", "parrot.py", "--engine", "parrot", "--param", "none", "--context", "none"]
    code, said, _ = coevo("run", "--task", "hall", *fixed, "--generations", "1", "--quiet")
    assert code == 0
    assert "beats highest_price" in said


def test_another_folder_is_made_where_it_is_asked_for(coevo):
    assert coevo("new", "problem", "hall", "--folder", "a/b")[0] == 0
    assert Path("a/b/hall/problem.toml").is_file()
    assert coevo("new", "plugin", "mine", "--folder", "a/c")[0] == 0
    assert Path("a/c/mine.py").is_file()


def test_nothing_that_exists_is_touched(hall, coevo):
    (hall / "template.py").write_text("mine")
    code, _, complaint = coevo("new", "problem", "hall")
    assert (code, complaint) == (
        2, "coevo: 'hall' exists already; give another name, or another folder with --folder\n"
    )  # fmt: skip
    assert (hall / "template.py").read_text() == "mine"
    Path("notes.py").write_text("mine")
    assert coevo("new", "plugin", "notes")[0] == 2
    Path("empty").mkdir()
    assert coevo("new", "problem", "empty")[0] == 2


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("", "name '' is none: expected small letters"),
        ("2x", "name '2x' is none"),
        ("../up", "name '../up' is none"),
        ("Großer", "is none"),
        ("a" * 61, "60 at most"),
        ("class", "'class' is a word of Python; give another, such as my_class"),
        ("my-own", "has a '-'; did you mean 'my_own'?"),
        ("tsp_construct", "'tsp_construct' is the name of a part of coevo"),
        ("es", "'es' is the name of a part of coevo"),
    ],
)
def test_a_name_that_cannot_be_is_one_line(coevo, name, part):
    code, said, complaint = coevo("new", "problem", name)
    assert (code, said) == (2, "")
    assert part in complaint
    assert complaint.count("\n") == 1
    assert list(Path.cwd().iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_line(coevo):
    Path("file").write_text("")
    code, _, complaint = coevo("new", "problem", "hall", "--folder", "file")
    assert code == 2
    assert complaint.startswith("coevo: 'file")
    assert complaint.count("\n") == 1


def test_a_new_plugin_evolves_and_its_options_are_known(coevo):
    code, said, complaint = coevo("new", "plugin", "keep-few")
    assert (code, complaint) == (0, "")
    assert said.splitlines() == [
        "keep_few.py", "run it: coevo run --plugin keep_few.py --context keep-few --param none"
    ]  # fmt: skip
    assert "best answers in the prompt" in coevo("options", "context", "keep-few", "--plugin", "keep_few.py")[1]
    few = ["--set", "keep-few.answers=3", "--set", "keep-few.shown=2", "--generations", "3", "--name", "a", "--quiet"]
    fake = ["--plugin", FAKES, "--task", "aim", "--engine", "numbers", "--param", "none"]
    code, _, complaint = coevo("run", "--plugin", "keep_few.py", "--context", "keep-few", *fake, *few)
    assert (code, complaint) == (0, "")
    prompts = [
        json.loads(Path(f"runs/a/contexts/g000{g}-b00.jsonl").read_text())["components"]["prompt"] for g in range(3)
    ]
    assert "best so far" not in prompts[0]
    assert [prompt.count("\n") for prompt in prompts[1:]] == [4, 4]  # two answers below two lines
    summary = json.loads(coevo("show", "a", "--json")[1])
    lines = [json.loads(line) for line in Path("runs/a/journal.jsonl").read_text().splitlines()]
    assert summary["status"] == "finished"
    best = [line for line in lines if line["kind"] == "batch"][-1]["states"]["contexts"]["best"]
    assert best == sorted(best, reverse=True)
    assert len(best) == 2


def test_a_new_plugin_runs_on_a_task_without_texts_and_without_answers_in_its_artifacts(coevo):
    coevo("new", "plugin", "mine")
    fake = ["--plugin", FAKES, "--task", "letters", "--engine", "numbers", "--param", "none", "--quiet"]
    code, _, complaint = coevo(
        "run", "--plugin", "mine.py", "--context", "mine", *fake, "--generations", "2", "--set", "mine.answers=2",
        "--name", "a",
    )  # fmt: skip
    assert (code, complaint) == (0, "")
    first, second = (
        json.loads(Path(f"runs/a/contexts/g000{g}-b00.jsonl").read_text())["components"]["prompt"] for g in range(2)
    )
    assert first == "Say anything."
    assert re.fullmatch(r"Say anything\.\n\nThe best so far:\n(-?\d.*\n?)+", second)


@pytest.mark.parametrize("name", sorted({*discovery.load().registries().tasks.names} - {"heuristics"}))
def test_a_new_plugin_asks_of_every_task_that_comes_with_coevo(coevo, name):
    coevo("new", "plugin", "mine")
    registries = discovery.load(["mine.py"]).registries()
    brief = registries.tasks.create(name, {}).brief()
    mine = registries.context_updaters.create("mine", {}, brief=brief)
    (context,) = mine.ask().contexts
    assert dict(context.components) == dict(brief.components)
    step = Step((), (), (), "stop", "x + 1")
    provenance = Provenance(0, 0, 0, None, 0, 0.0, 0, context.id, "train", 0, 0, "p")
    rollout = Rollout(provenance, "ok", 1.0, Trajectory((step,)))
    mine.tell(Buffer(Batch((context,)), (), (rollout,)))
    assert mine.ask() is None
    assert mine.ask().contexts[0].components["prompt"].endswith("\n\nThe best so far:\nx + 1")


@pytest.mark.parametrize(("name", "part"), [("eoh", "'eoh' is the name of a part of coevo"), ("lambda", "word of Py")])
def test_a_plugin_does_not_take_the_name_of_another(coevo, name, part):
    code, _, complaint = coevo("new", "plugin", name)
    assert code == 2
    assert part in complaint


def test_the_templates_are_files_of_the_package():
    names = {entry.name for entry in files("coevo.tools.scaffold").joinpath("templates").iterdir()}
    assert names == {"problem.toml.txt", "evaluate.py.txt", "template.py.txt", "plugin.py.txt"}
