"""What a run depends on is in run.json; a resume that would mix two versions of it refuses, and says what changed."""

import json
import shutil
import sys
from pathlib import Path

import fakes
import pytest

from coevo.app import inputs
from coevo.app import launch as app
from coevo.app import record as startup
from coevo.app.blueprint import Blueprint
from coevo.cli import main
from coevo.errors import RunInterrupted, UserError
from coevo.host import discovery
from coevo.host.config import build
from coevo.host.hashes import hash_of

PLUGIN = """
import coevo
from coevo.records import Batch, Context


class Mine:
    def __init__(self, *, words: str = "", samples: int = 2):
        self.asked, self.samples = False, samples

    def ask(self):
        self.asked = not self.asked
        return Batch((Context({"prompt": "say number"}),), samples=self.samples) if self.asked else None

    def tell(self, buffer):
        pass

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, state):
        self.asked = state["asked"]


@coevo.hookimpl
def register_context_updaters(updaters):
    updaters.register("mine", Mine)
"""
STOP = """
import coevo


@coevo.hookimpl
def generation_finished(report):
    if report.generation == 0:
        raise KeyboardInterrupt
"""


@pytest.fixture(autouse=True)
def _in_tmp(in_empty_folder):
    Path("mine.py").write_text(PLUGIN)
    Path("stop.py").write_text(STOP)


def settings(**changes):
    es = {"population": 4, "sigma": 0.3, "alpha": 0.3}
    return {
        "plugins": [fakes.__file__, "mine.py", "stop.py"], "task": "aim", "engine": "numbers", "context": "mine",
        "generations": 2, "loggers": [], "name": "a", "es": es, "probe": {"every": 0}, **changes,
    }  # fmt: skip


def interrupted(**changes):
    """A run that was cut in its middle; nothing interrupts it again."""
    with pytest.raises(RunInterrupted):
        app.run(settings(**changes))
    Path("stop.py").write_text("")


def refusal():
    with pytest.raises(UserError) as refused:
        app.resume("a")
    said = str(refused.value)
    assert said.startswith("run 'a' would mix what it began with and what is there now: ")
    assert said.endswith("; put it back, or accept it with: coevo resume a --accept-changes")
    return said


def info():
    return json.loads(Path("runs/a/run.json").read_text())


def test_a_run_where_nothing_changed_goes_on_without_a_word(capsys):
    interrupted()
    Path("stop.py").write_text(STOP)
    with pytest.raises(RunInterrupted):  # it observes the generation that was cut once more
        app.resume("a")
    assert capsys.readouterr().err == ""


def test_a_plugin_that_was_edited_is_refused_and_accepted_on_demand(capsys):
    interrupted()
    Path("mine.py").write_text(PLUGIN.replace("say number", "say  number"))
    assert "file 'mine.py' of plugin 'mine' has changed" in refusal()
    before = Path("runs/a/journal.jsonl").read_bytes()
    assert main(["resume", "a"]) == 2
    assert Path("runs/a/journal.jsonl").read_bytes() == before
    assert main(["resume", "a", "--accept-changes", "--quiet"]) == 0
    assert "coevo: note: the run goes on with changes: file 'mine.py' of plugin 'mine' has changed" in (
        capsys.readouterr().err
    )
    (accepted,) = info()["accepted"]
    assert accepted["changes"] == ["file 'mine.py' of plugin 'mine' has changed"]
    assert accepted["generation"] == 0
    assert main(["show", "a"]) == 0
    shown = capsys.readouterr().out
    assert "file 'mine.py' of plugin 'mine' has changed (accepted before batch 1 of generation 0)" in " ".join(
        shown.split()
    )


def test_a_run_that_has_no_answer_yet_begins_with_what_is_there_now():
    Path("stop.py").write_text(
        STOP.replace("generation_finished(report)", "run_started()").replace("report.generation", "0")
    )
    with pytest.raises(KeyboardInterrupt):
        app.run(settings())
    Path("mine.py").write_text(PLUGIN.replace("say number", "tell number"))
    Path("stop.py").write_text("")
    assert app.resume("a")["status"] == "finished"
    assert "accepted" not in info()
    assert info()["inputs"]["plugins"]["mine"]["files"]["mine.py"] == hash_of(Path("mine.py"))


def test_what_was_accepted_once_is_not_asked_again():
    interrupted()
    Path("stop.py").write_text(STOP.replace("== 0", "== 1"))
    Path("mine.py").write_text(PLUGIN + "\n")
    with pytest.raises(RunInterrupted):
        app.resume("a", accept_changes=True)
    Path("stop.py").write_text("")
    assert app.resume("a")["status"] == "finished"


def test_a_plugin_that_only_observes_is_a_note(capsys):
    interrupted()  # which takes the interruption out of stop.py
    assert app.resume("a")["status"] == "finished"
    assert "coevo: note: file 'stop.py' of plugin 'stop' has changed\n" in capsys.readouterr().err


def test_a_module_beside_a_plugin_is_an_input_of_it(monkeypatch):
    monkeypatch.syspath_prepend(Path.cwd())
    Path("beside_mine.py").write_text("WORD = 'say'\n")
    Path("mine.py").write_text(f"import beside_mine\n{PLUGIN}")
    try:
        interrupted()
        Path("beside_mine.py").write_text("WORD = 'tell'\n")
        assert "file 'beside_mine.py' beside plugin 'mine' has changed" in refusal()
    finally:
        sys.modules.pop("beside_mine", None)


def test_files_and_folders_that_options_name_are_inputs():
    Path("data").mkdir()
    Path("data/words.txt").write_text("one")
    interrupted(mine={"words": "./data"})
    Path("data/words.txt").write_text("two")
    Path("data/more.txt").write_text("three")
    said = refusal()
    assert "file 'words.txt' of option mine.words has changed" in said
    assert "file 'more.txt' of option mine.words is new" in said
    shutil.rmtree("data")
    assert "what option mine.words names is gone" in refusal()


def test_the_folder_of_a_problem_is_an_input(coevo):
    assert coevo("new", "problem", "hall")[0] == 0
    registries = discovery.load().registries()
    data = {"task": "hall", "param": "none", "context": "none", "engine": "transformers"}
    plugins = discovery.load()

    def taken():
        return inputs.taken(Blueprint(build(data, ["heuristics"]), registries), plugins)

    before = taken()
    assert set(before["files"]["heuristics.folder"]) == {"problem.toml", "evaluate.py", "template.py"}
    assert inputs.changes(before, taken()).mixing == []
    with Path("hall/evaluate.py").open("a") as file:
        file.write("# changed\n")
    Path("hall/.hidden").write_text("")
    assert inputs.changes(before, taken()).mixing == ["file 'evaluate.py' of option heuristics.folder has changed"]


def test_the_same_folder_is_meant_wherever_a_run_is_resumed():
    data = {"task": "heuristics", "heuristics": {"folder": "hall"}}
    Path("hall").mkdir()
    assert build(data, ["heuristics"]).options["heuristics"]["folder"] == str(Path("hall").absolute())


def test_a_plugin_given_by_a_relative_path_is_found_from_another_folder(monkeypatch):
    interrupted()
    Path("elsewhere").mkdir()
    runs = Path("runs").absolute()
    monkeypatch.chdir("elsewhere")
    assert app.resume("a", str(runs))["status"] == "finished"


def test_a_plugin_of_the_working_folder_that_is_not_there_is_named_with_its_folder(monkeypatch):
    monkeypatch.setenv("COEVO_TRUST", "1")
    Path("mine.py").rename("coevo_plugin.py")
    where, runs = str(Path.cwd()), Path("runs").absolute()
    interrupted(plugins=[fakes.__file__, "stop.py"])
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    with pytest.raises(UserError) as refused:
        app.resume("a", str(runs))
    assert str(refused.value) == (
        f"run 'a' began with plugin '{where}/coevo_plugin.py', which is not loaded here; resume it from {where!r}"
    )


def test_an_edited_configuration_is_named_by_its_key(capsys):
    interrupted()
    path = Path("runs/a/config.toml")
    text = path.read_text()
    path.write_text(text.replace("sigma = 0.3", "sigma = 0.4"))
    assert "es.sigma in config.toml was 0.3 when the run began and is 0.4" in refusal()
    path.write_text(
        text.replace("generations = 2", "generations = 3").replace("judge_best = true", "judge_best = false")
    )
    assert app.resume("a")["generations"] == 3
    assert "generations in config.toml was 2 when the run began and is 3; schedules" in capsys.readouterr().err


def test_an_environment_that_computes_otherwise_is_a_note_and_no_secret_is_kept(monkeypatch, capsys):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    interrupted()
    assert "hush" not in Path("runs/a/run.json").read_text()
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("VLLM_API_KEY")
    app.resume("a")
    said = capsys.readouterr().err
    assert "note: environment variable OMP_NUM_THREADS was '1' when the run began and is '2'\n" in said
    assert "VLLM_API_KEY" not in said


def look(**changes):
    base = {
        "folder": "/x", "config": {}, "parts": {"task 'a'": "outside"}, "files": {}, "environment": {},
        "plugins": {"outside": {"source": "coevo-outside 1.0", "files": {"a.py": "1"}, "beside": {}}},
    }  # fmt: skip
    return {**base, **changes}


def plugin(source, **files):
    return {"outside": {"source": source, "files": files, "beside": {}}}


def test_an_installed_plugin_of_another_version_or_with_other_files_is_refused_and_coevos_own_is_not():
    def mixing(before, now):
        return inputs.changes(look(plugins=before), look(plugins=now)).mixing

    was = plugin("coevo-outside 1.0", a="1")
    assert mixing(was, was) == []
    assert mixing(was, plugin("coevo-outside 1.1", a="2")) == [
        "plugin 'outside' was coevo-outside 1.0 when the run began and is coevo-outside 1.1"
    ]
    assert mixing(was, plugin("coevo-outside 1.0", a="2")) == ["file 'a' of plugin 'outside' has changed"]
    assert mixing(was, {}) == ["plugin 'outside' (coevo-outside 1.0) is not loaded"]
    # Its version is compared once, with those of torch and others, and is a note.
    assert mixing(plugin("coevo 0.1.0", a="1"), plugin("coevo 0.2.0", a="2")) == []


def test_a_part_that_comes_from_another_plugin_is_refused():
    found = inputs.changes(look(), look(parts={"task 'a'": "other"}))
    assert "task 'a' came from plugin 'outside' when the run began and comes from 'other'" in found.mixing


def test_a_run_of_an_older_version_has_nothing_to_compare():
    assert inputs.changes({}, look()).mixing == []
    assert startup.mixing({}, {"model_files": {"a.json": "1"}, "describe": {}}) == []


def test_another_template_or_tokenizer_is_refused_and_another_machine_is_a_note():
    before = {"model_files": {"tokenizer.json": "1"}, "describe": {"chat_template": "ab", "device": "cpu"}}
    now = {"model_files": {"tokenizer.json": "2"}, "describe": {"chat_template": "cd", "device": "cuda"}}
    assert startup.mixing(before, now) == [
        "file 'tokenizer.json' of the model has changed",
        "the chat template was ab when the run began and is cd",
    ]
    about = {"versions": {}, "python": "3.11", "machine": "x86_64", "processor": "other"}
    lines = startup.differences({**before, "processor": "one"}, {**now, **about})
    assert [line.partition(";")[0] for line in lines] == [
        "processor was 'one' when the run began and is 'other'",
        "device was 'cpu' when the run began and is 'cuda'",
    ]


def test_of_a_model_folder_what_makes_tokens_of_texts_is_an_input_and_the_weights_are_compared_by_their_digest():
    Path("model").mkdir()
    for name in ("tokenizer.json", "chat_template.jinja", "vocab.txt", "model.safetensors", "README.md"):
        Path("model", name).write_text(name)
    names = set(startup.model_files({"base": "model"}))
    assert names == {"tokenizer.json", "chat_template.jinja", "vocab.txt"}
    assert startup.model_files({}) == startup.model_files({"base": "gone"}) == {}
