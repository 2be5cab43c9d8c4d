"""The pages say what is true: their examples run, their commands and options exist, their links lead somewhere."""

import ast
import contextlib
import io
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

import coevo
from coevo.cli import main
from coevo.cli.application import build_app
from coevo.cli.catalogue import kinds
from coevo.host import discovery
from coevo.host.config import FIELDS, RolloutConfig, SamplingConfig
from coevo.sandbox import Evaluator
from coevo_heuristics import from_folder
from tests.cli import checkpoint_engine

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
FAKES = str(ROOT / "tests/fakes.py")
PARROT = """
from contextlib import asynccontextmanager

import coevo


class Parrot:
    capabilities = coevo.Capabilities(adapts=False)
    id = "parrot"

    @asynccontextmanager
    async def lease(self, perturbation):
        yield self

    async def complete(self, requests):
        return [coevo.Completion(" due + (due - (due - work))", (1,), (2,), "stop") for _ in requests]

    def digest(self):
        return "0" * 64


@coevo.hookimpl
def register_engines(engines):
    engines.register("parrot", Parrot)
"""


def page(name):
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def printed(code):
    """What a program of the pages prints."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "<docs>", "exec"), {"__name__": "__main__"})
    return said.getvalue()


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COEVO_PLUGINS", raising=False)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_every_python_example_parses(path):
    for code in blocks(path.read_text(encoding="utf-8"), "python"):
        ast.parse(code)


# docs/your-own-plugin.md


def own_plugin(*parts):
    """The file `mine.py` of the page, with these of its parts."""
    names = ("plain", "context", "parameters", "engine", "answer", "logger", "observer")
    code = dict(zip(names, blocks(page("your-own-plugin.md"), "python"), strict=True))
    Path("mine.py").write_text("\n\n".join(code[part] for part in parts))
    Path("answer.py").write_text(code["answer"])
    return code


def aimed(**settings):
    options = {"task": "aim", "engine": "numbers", "param": "none", "generations": 2, "name": "a", "loggers": []}
    return coevo.run({"plugins": [FAKES, "mine.py"], **options, **settings})


def test_the_smallest_updater_of_the_page_asks_the_prompt_of_the_task():
    own_plugin("plain")
    summary = aimed(context="plain")
    assert (summary["status"], summary["batches"], summary["calls"]) == ("finished", 2, 2 * 3 * 16)
    asked = json.loads(Path("runs/a/contexts/g0001-b00.jsonl").read_text())["components"]
    assert asked == {"prompt": "say number"}


def test_the_context_updater_of_the_page_evolves():
    code = own_plugin("context")["context"]
    assert len(code.splitlines()) < 45
    summary = aimed(context="keep-best", **{"keep-best": {"answers": 3}})
    assert (summary["status"], summary["batches"], summary["calls"]) == ("finished", 2, 2 * 3 * 3)
    first, second = (Path(f"runs/a/contexts/g000{g}-b00.jsonl").read_text() for g in (0, 1))
    assert "The best so far" not in first
    prompt = json.loads(second)["components"]["prompt"]
    assert re.fullmatch(r"say number\n\nThe best so far: -?\d+\.\d+", prompt)


def test_its_options_are_listed_and_refused_as_the_page_says(capsys):
    own_plugin("context", "parameters")
    text = page("your-own-plugin.md")
    assert main(["options", "context", "keep-best", "--plugin", "mine.py"]) == 0
    assert f"```\n{capsys.readouterr().out}```" in text
    assert main(["run", "--plugin", "mine.py", "--param", "climb", "--set", "climb.population=1"]) == 2
    assert " ".join(capsys.readouterr().err.split()) in " ".join(text.split())


def test_the_parameter_updater_of_the_page_goes_towards_the_best_member():
    own_plugin("context", "parameters")
    aimed(param="climb", context="none", generations=12, climb={"sigma": 0.3, "step": 1.0})
    lines = [json.loads(line) for line in Path("runs/a/journal.jsonl").read_text().splitlines()]
    updates = [line["update"] for line in lines if line.get("update")]
    assert len(updates) == 12
    assert all([coefficient for _, coefficient in update["terms"]] == [0.3] for update in updates)
    probes = {}
    for rollout in coevo.load("a").rollouts(probes=True):
        if rollout.provenance.purpose == "probe":
            probes.setdefault(rollout.provenance.generation, []).append(rollout.metrics["objective"])
    first, *_, last = (sum(distances) / len(distances) for distances in probes.values())
    assert last < first / 2  # distance to the target


def test_the_engine_of_the_page_asks_a_program(capsys):
    own_plugin("context", "parameters", "engine", "logger")
    command = shlex.join([sys.executable, "answer.py"])
    fixed = ["--plugin", "mine.py", "--engine", "pipe", "--set", f"pipe.command='{command}'", "--name", "a"]
    asked = [
        "--context",
        "keep-best",
        "--generations",
        "1",
        "--set",
        "keep-best.answers=2",
        "--set",
        'loggers=["history"]',
    ]
    assert main(["run", *fixed, *asked, "--param", "none"]) == 0
    (rollouts,) = [list(coevo.load("a").rollouts())]
    assert [r.status for r in rollouts] == ["ok", "ok"]
    assert all(re.fullmatch(r"d_current - 0\.[369] \* d_mean", r.artifacts["answer"]) for r in rollouts)
    best = coevo.load("a").best["objective"]
    assert Path("history.csv").read_text().split() == [f"0,2,{best}"]
    capsys.readouterr()
    assert main(["run", *fixed, "--name", "b", "--context", "sample", "--param", "climb"]) == 2
    assert "cannot train on engine 'pipe'" in capsys.readouterr().err


def test_a_program_that_fails_is_named():
    own_plugin("context", "engine")
    with pytest.raises(coevo.RunError, match="ended with exit code 1"):
        coevo.run(
            {
                "plugins": ["mine.py"], "engine": "pipe", "pipe": {"command": "false"}, "param": "none",
                "context": "none", "generations": 1, "loggers": [],
            }
        )  # fmt: skip


def test_the_observer_of_the_page_is_told_of_every_generation(capsys):
    own_plugin("observer")
    aimed(context="none")
    assert re.findall(r"^(\d) Best\(", capsys.readouterr().out, re.MULTILINE) == ["0", "1"]


# docs/problems.md


@pytest.fixture
def one_machine(tmp_path):
    """The folder that the page prints, with both holes."""
    folder = tmp_path / "one_machine"
    folder.mkdir()
    named = r"^(Append to )?`one_machine/([\w.]+)`:\n\n```\w+\n(.*?)^```$"
    for appended, name, text in re.findall(named, page("problems.md"), re.MULTILINE | re.DOTALL):
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}" if appended else text)
    assert {p.name for p in folder.iterdir()} == {
        "problem.toml", "template.py", "template_function.py", "evaluate.py"
    }  # fmt: skip
    return folder


@pytest.fixture
def task(one_machine):
    task = from_folder(one_machine, workers=1)
    task.start()
    yield task
    task.close()


def test_the_seed_of_the_problem_is_its_baseline(one_machine, task):
    baseline = task.brief().baseline()
    with Evaluator(one_machine, "train", "next_job", workers=1) as evaluator:
        evaluation = evaluator.evaluate((one_machine / "template.py").read_text())
    assert (evaluation.status, evaluation.objective) == ("ok", baseline.value)


def test_the_references_of_the_problem_are_right_and_no_example_beats_the_baseline(task):
    for reference in task.brief().references:
        if reference.split == "train":
            answer = reference.method.removeprefix("score = ")
            assert task.judge(answer, "train").metrics == {"objective": reference.value}
    for example in task.brief().examples:
        assert task.judge(example, "train").metrics["objective"] >= task.brief().baseline().value


@pytest.mark.parametrize(
    ("answer", "status"), [("np.log(due)", "non_finite"), ("due[99]", "exception"), ("due +", "syntax")]
)
def test_a_wrong_answer_has_the_status_that_the_page_gives(task, answer, status):
    assert f"`{answer}` is" in page("problems.md").replace("an `exception`", "`exception`")
    assert f"`{status}`" in page("problems.md")
    assert task.judge(answer, "train").status == status


@pytest.mark.parametrize("order", [[0] * 40, [0], "all", [float(n) for n in range(40)]])
def test_an_order_that_is_none_is_an_invalid_solution(one_machine, order):
    with Evaluator(one_machine, "train", "next_job", workers=1) as evaluator:
        evaluation = evaluator.value([order] * evaluator.author.instances)
    assert evaluation.status == "invalid_solution", evaluation


def test_the_function_hole_of_the_problem_takes_a_function(one_machine):
    task = from_folder(one_machine, hole="function", workers=1)
    task.start()
    answer = "def next_job(work, due, weight):\n    return np.argmin(np.maximum(work, due) / weight)"
    try:
        assert task.judge(answer, "train").metrics == {"objective": task.brief().best_known().value}
    finally:
        task.close()


def test_the_command_of_the_page_runs_the_problem(one_machine, capsys):
    Path("parrot.py").write_text(PARROT)
    fixed = ["--plugin", "parrot.py", "--engine", "parrot", "--param", "none", "--context", "none"]
    assert main(["run", "--task", "one_machine", *fixed, "--generations", "1", "--quiet"]) == 0
    said = capsys.readouterr().out
    # The page's own run found this answer and printed these lines.
    best = re.search(r"^best +objective 272.*$", said, re.MULTILINE)
    assert best is not None
    assert best[0] in page("problems.md")
    (run,) = Path("runs").iterdir()
    assert run.name == "one_machine-none-none-1"
    test = blocks(page("problems.md"), "python")[-1]
    (run / "best").rename(run.parent / "best")
    found = printed(test.replace("runs/one_machine-es-eoh-1/best", "runs/best"))
    assert found.strip() in test


def test_an_answer_is_tried_without_a_model(one_machine):
    (code,) = (b for b in blocks(page("problems.md"), "python") if "task.judge(" in b)
    said = printed(code)
    first = said.splitlines()[0]
    assert f"# {first}" in code
    assert "score = np.sqrt(work) * due" in said


def test_reference_values_are_left_out_with_other_instances(one_machine):
    assert from_folder(one_machine, instance_options={"count": 2}).brief().references == ()


# docs/tutorial.md, docs/reading-a-run.md, docs/running.md


def test_the_best_heuristic_is_used_as_the_tutorial_does(tmp_path, monkeypatch):
    template = from_folder(ROOT / "tasks/coevo_heuristics/problems/tsp_construct").template
    Path("heuristic.py").write_text(template.render("d_current - d_mean"))
    monkeypatch.syspath_prepend(tmp_path)
    (code,) = (b for b in blocks(page("tutorial.md"), "python") if "select_next_node" in b)
    assert printed(code).startswith("12.96")
    assert "# 12.96;" in code


def test_rollouts_are_read_as_the_page_does():
    options = {"task": "aim", "engine": "numbers", "context": "none", "param": "none", "generations": 2}
    coevo.run({"plugins": [FAKES], "loggers": [], "name": "first", **options})
    (code,) = blocks(page("reading-a-run.md"), "python")
    # These rollouts have no message; the task's own have, which the heuristics' tests see to.
    lines = printed(code.replace('["message"]', '.get("message", "")')).splitlines()
    assert len(lines) == 6
    assert all(re.match(r"ok '-?\d+\.\d+' \{'objective': ", line) for line in lines)


def test_the_sizes_that_the_page_names_are_the_defaults():
    registries = discovery.load().registries()
    es = {option.name: option.default for option in registries.parameter_updaters.options("es")}
    eoh = {option.name: option.default for option in registries.context_updaters.options("eoh")}
    text = " ".join(page("running.md").split())
    assert f"There are {es['population']} unless you say otherwise, each with `es.answers` ({es['answers']})" in text
    assert f": {es['population'] * es['answers']} answers in every `m1` and `m2` batch" in text
    assert f"every other batch has. There are {eoh['population']} unless you say otherwise." in text
    whole = 2 * (es["population"] * es["answers"] + eoh["population"])
    assert f"a generation has {whole} answers" in text


# docs/python.md


def test_a_run_is_started_read_replayed_and_exported_from_python(tmp_path):
    start, read, rebuild = blocks(page("python.md"), "python")
    base = checkpoint_engine.save_checkpoint(tmp_path / "base")
    fakes = f'"plugins": [{FAKES!r}, {checkpoint_engine.__file__!r}], "engine": "checkpoint", "model": {str(base)!r}'
    made = printed(start.replace('"tsp_construct"', '"aim"').replace('"eoh"', f'"fixed", {fakes}, "loggers": []'))
    assert re.fullmatch(r"(run first: .*\n(.*\n)*)?finished [\d.]+\n", made), made
    first, *lines = printed(read).splitlines()
    assert re.fullmatch(r"\d+ [\d.]+", first)
    assert len(lines) == sum(1 for _ in coevo.load("first").rollouts())
    assert len(lines) < sum(1 for _ in coevo.load("runs/first").rollouts(probes=True))
    digest = printed(rebuild).strip()
    assert digest == coevo.load("first").summary["weights_digest"] == coevo.resume("first")["weights_digest"]
    assert Path("exported/model.safetensors").is_file()
    with pytest.raises(coevo.UserError, match="no run named 'fist' in 'runs'; did you mean 'first'"):
        coevo.load("fist")


# docs/api.md


def test_the_page_of_the_api_has_every_public_name_once():
    listed = re.findall(r"^::: coevo\.(\w+)$", page("api.md"), re.MULTILINE)
    assert sorted(listed) == sorted([*coevo.__all__, "optional"])


# docs/sandbox.md


def test_the_table_of_hostile_candidates_is_that_of_the_tests():
    tree = ast.parse((ROOT / "tests/sandbox/test_hostile.py").read_text(encoding="utf-8"))
    tested = {
        name: status
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id in ("HOSTILE", "ENCLOSED")
        for name, (_, status) in ast.literal_eval(node.value).items()
    }
    assert dict(re.findall(r"^\| (.+?) \| `(\w+)` \|$", page("sandbox.md"), re.MULTILINE)) == tested


def test_what_holds_on_this_system_is_shown_as_the_page_does():
    (code,) = blocks(page("sandbox.md"), "python")
    assert re.match(r"\{'processes': (True|False), .*\} \d+\n", printed(code))


# Links, navigation, commands


def anchors(path):
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_every_relative_link_leads_somewhere(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file) if file else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_in_the_navigation_and_nothing_else_is():
    told = re.findall(r"^      - [\w ]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(told) == [p.name for p in DOCS]


def mentioned(path):
    """Every command line of coevo in code: fenced, indented or inline; in a Makefile, anywhere."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = re.sub(r"^```(python|toml)\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        fenced = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        rest = re.sub(r"^```\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        indented = re.findall(r"^    (.+)$", rest, re.MULTILINE)
        text = "\n".join([*fenced, *indented, *re.findall(r"`([^`\n]+)`", rest)])
    else:
        text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    return re.findall(r"(?:^|[\s/])coevo ([^\n]+)", text, re.MULTILINE)


def misuse(command, words):
    """What of a command line the real application does not know, or empty."""
    while words and getattr(command, "commands", None):
        if words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            return f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    known = {"--help", *(name for parameter in command.params for name in parameter.opts)}
    return "; ".join(f"no option {word!r}" for word in words if word.startswith("--") and word not in known)


@pytest.mark.parametrize("path", [*PAGES, ROOT / "Makefile"], ids=lambda p: p.name)
def test_every_command_that_a_page_mentions_exists(path):
    command = typer.main.get_command(build_app(discovery.load()))
    lines = mentioned(path)
    assert lines or path.name in ("CONTRIBUTING.md", "api.md"), "no command was found in it"
    wrong = {line: said for line in lines if (said := misuse(command, shlex.split(line, comments=True)))}
    assert wrong == {}


def test_a_command_that_does_not_exist_would_be_noticed():
    command = typer.main.get_command(build_app(discovery.load()))
    assert misuse(command, ["bench", "moise"]) == "no command 'moise'"
    assert misuse(command, ["run", "--generation", "3"]) == "no option '--generation'"
    assert misuse(command, ["bench", "noise", "--rounds", "3"]) == ""


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_every_key_that_a_page_sets_exists(path):
    own_plugin("context", "parameters", "engine", "logger")
    registries = discovery.load(["mine.py"]).registries()
    known = {*FIELDS, *(f"sampling.{name}" for name in SamplingConfig.model_fields)}
    known |= {f"rollouts.{name}" for name in RolloutConfig.model_fields}
    for registry in kinds(registries).values():
        for name in set(registry.names) & set(registries.names):
            known |= {f"{name}.{option.name}" for option in registry.options(name)}
    text = path.read_text(encoding="utf-8")
    keys = re.findall(r"--set ([\w-]+(?:\.[\w-]+)?)[\w.]*=", text)
    placeholders = {"A.B", "NAME.OPTION", "name.option", "SETTING"}
    assert set(keys) - known == set(keys) & placeholders
