"""What the commands do and print when all is well."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coevo.numerics.objectives import written

COEVO = [sys.executable, "-c", "import sys; from coevo.cli import main; sys.exit(main())"]


@pytest.fixture
def a(coevo, small):
    code, out, said = coevo("run", *small, "--generations", "2", "--population", "4", "--name", "a", "--quiet")
    assert (code, said) == (0, "")
    return out


def test_run_ends_with_the_best_answer_and_how_to_look_further(a):
    best = json.loads(Path("runs/a/best/best.json").read_text())
    lines = a.splitlines()
    assert lines[0].startswith("run a: finished (all generations done); 186 calls, 930 tokens, ")
    assert f"best      objective {written(best['objective'])}; exact is 0; beats zero (1.16667)" in lines
    assert "path      runs/a/best/number.txt" in lines
    assert f"    {best['answer']}" in lines
    assert lines[-3].startswith("learning: the centre gets better: probe score 0.753 → 0.756 (± 0.001)")
    assert lines[-1] == "look further: coevo show a, coevo report a"


def test_show_as_text_and_as_json(coevo, a):
    text = coevo("show", "a")[1]
    assert text.splitlines()[0] == "run       a: finished (generations)"
    assert "progress  2 of 2 generations, 4 batches, 2 updates of the weights" in text
    assert "answers   60, 100 % valid (60 ok)" in text
    assert f"    {json.loads(Path('runs/a/best/best.json').read_text())['answer']}" in text
    assert text.splitlines()[-5].split() == [
        "gen", "batch", "op", "members", "answers", "valid", "best", "mean", "sigma", "moved", "informative",
        "ratio", "tokens/s",
    ]  # fmt: skip
    shown = json.loads(coevo("show", "a", "--json")[1])
    expected = {
        "name": "a", "path": "runs/a", "status": "finished", "reason": "generations", "message": "", "task": "aim",
        "param": "es", "context": "fixed", "engine": "numbers", "generations": 2, "generations_planned": 2,
        "batches": 4, "updates": 2, "zero_updates": [], "direction": "minimize", "reference": ["exact", 0.0],
        "statuses": {"ok": 60}, "valid_rate": 1.0, "calls": 186, "tokens": 930,
    }  # fmt: skip
    assert {key: shown[key] for key in expected} == expected
    assert shown["best"]["beats_baseline"] is True
    assert shown["best"]["gap"] is None  # the reference is 0


def test_a_run_is_found_by_name_by_path_and_below_another_folder(coevo, a):
    by_name = coevo("show", "a", "--json")[1]
    assert json.loads(coevo("show", "runs/a", "--json")[1]) == json.loads(by_name)
    os.rename("runs", "elsewhere")
    assert coevo("show", "a")[0] == 2
    assert coevo("show", "a", "--runs", "elsewhere")[0] == 0


def test_a_zero_update_says_why(coevo, small):
    coevo("run", *small, "--set", "es.sigma=0", "--generations", "1", "--name", "z", "--quiet")
    shown = json.loads(coevo("show", "z", "--json")[1])
    assert shown["updates"] == 0
    assert shown["zero_updates"] == [{"generation": 0, "batch": 1, "reason": "sigma is 0"}]
    text = coevo("show", "z")[1]
    assert "did not move; 1 zero update, the last because sigma is 0" in text
    assert "no step: sigma is 0" in text


def test_the_command_line_wins_over_the_file(coevo, small):
    Path("c.toml").write_text(
        'generations = 9\nname = "file"\nseed = 3\nloggers = []\n[es]\nsigma = 0.9\nalpha = 0.1\n[fixed]\nsamples = 1\n'
    )
    options = ["--generations", "1", "--name", "b", "--set", "es.sigma=0.2", "--set", "rollouts.chunk=2"]
    assert coevo("run", "c.toml", *small, *options)[0] == 0
    written = tomllib.loads(Path("runs/b/config.toml").read_text())
    assert (written["generations"], written["name"], written["seed"]) == (1, "b", 3)
    assert written["es"] == {"sigma": 0.2, "alpha": 0.1}
    assert written["fixed"] == {"samples": 1}
    assert written["rollouts"]["chunk"] == 2


def test_a_run_without_a_name_takes_the_next_number(coevo, small):
    for number in (1, 2):
        coevo("run", *small, "--generations", "1", "--quiet")
        assert Path(f"runs/aim-es-fixed-{number}/journal.jsonl").is_file()


def test_a_budget_ends_a_run_and_is_named(coevo, small):
    out = coevo("run", *small, "--calls", "50", "--population", "4", "--name", "a", "--quiet")[1]
    assert "finished (the next batch could exceed --calls); 36 calls" in out


def test_a_task_given_as_a_folder_is_a_problem(coevo, small, monkeypatch):
    from coevo_heuristics import task as heuristics

    problem = Path(heuristics.__file__).parent / "problems" / "tsp_construct"
    seen = []
    monkeypatch.setattr("coevo.app.launch.parts", lambda blueprint: seen.append(blueprint) or 1 / 0)
    for given in (str(problem), os.path.relpath(problem)):
        with pytest.raises(ZeroDivisionError):
            coevo("run", *small, "--context", "eoh", "--task", given)
    assert {(b.config.task, b.options("heuristics")["folder"]) for b in seen} == {("heuristics", str(problem))}
    assert seen[0].run_path().name == "tsp_construct-es-eoh-1"


def test_an_interrupted_run_says_how_to_go_on_and_does(coevo, small, tmp_path):
    whole = [*small, "--set", "numbers.delay=0.05", "--generations", "6", "--population", "4"]
    run = subprocess.Popen(
        [*COEVO, "run", *whole, "--name", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    for _ in range(5):  # the start line and two generations
        run.stdout.readline()
    run.send_signal(signal.SIGINT)
    out, said = run.communicate(timeout=180)
    assert (run.returncode, said) == (130, "coevo: interrupted; go on with: coevo resume a\n")
    shown = json.loads(coevo("show", "a", "--json")[1])
    assert shown["status"] == "interrupted"
    assert "go on     coevo resume a" in coevo("show", "a")[1]
    code, out, said = coevo("resume", "a")
    assert (code, said) == (0, "")
    assert "going on at generation " in out
    coevo("run", *whole, "--name", "unbroken", "--quiet")
    digests = [json.loads(coevo("show", name, "--json")[1])["weights_digest"] for name in ("a", "unbroken")]
    assert digests[0] == digests[1]
    assert coevo("resume", "a")[0] == 0  # nothing left to do


PASSES_ON = """
import coevo
from coevo.host.registry import Option

def listed():
    return [Option("depth", int, 3), Option("shape", str, None)]

class Engine:
    'An engine that passes options on.'

    option_tables = {"options": listed}

    def __init__(self, options: dict | None = None):
        '''Makes it.

        Args:
            options: of the library below.
        '''

@coevo.hookimpl
def register_engines(engines):
    engines.register("lender", Engine)
"""


def test_options_that_are_passed_on_to_a_library_are_listed_too(in_empty_folder, coevo):
    Path("lender.py").write_text(PASSES_ON)
    code, out, _ = coevo("options", "engine", "lender", "--plugin", "lender.py")
    assert (code, out.splitlines()[-1]) == (0, "lender.options is listed by: coevo options engine lender.options")
    code, out, _ = coevo("options", "engine", "lender.options", "--plugin", "lender.py")
    assert code == 0
    assert out.splitlines()[0].endswith("of the library below.")
    assert [line.split() for line in out.splitlines()[2:]] == [["depth", "int", "3"], ["shape", "str", "-"]]
    code, _, err = coevo("options", "engine", "lender.option", "--plugin", "lender.py")
    assert (code, err) == (2, "coevo: no options to list for 'lender.option'; did you mean 'lender.options'?\n")
    code, _, err = coevo("options", "engine", "transformers.options")
    assert (code, err) == (2, "coevo: no options to list for 'transformers.options'; expected one of: transformers\n")


def test_tasks_and_options_as_json(coevo):
    tasks = json.loads(coevo("tasks", "--json")[1])
    assert {"name", "plugin", "summary"} == set(tasks[0])
    assert "tsp_construct" in {task["name"] for task in tasks}
    shown = json.loads(coevo("options", "param", "es", "--json")[1])
    options = {option["name"]: option for option in shown["options"]}
    assert (shown["kind"], shown["name"], shown["plugin"]) == ("param", "es", "es")
    assert options["sigma"]["type"] == "float"
    assert options["sigma"]["default"] > 0
    assert options["sigma"]["help"].startswith("standard deviation")
    assert options["shaping"]["type"] == "'zscore' | 'centered_rank' | 'max_seeking' | 'none'"
    assert options["sigma_end"]["type"] == "float"
    assert options["antithetic"]["default"] is False
    assert (options["sigma"]["bounds"], options["shaping"]["bounds"]) == ("0 ≤ x ≤ 1000", "")
    assert json.loads(coevo("options", "task", "heuristics", "--json")[1])["options"][0]["required"] is True
    assert "it has no options" in coevo("options", "param", "none")[1]


def test_the_settings_of_a_run_are_listed_as_options_are(coevo):
    out = coevo("options", "run")[1]
    assert re.search(r"^sampling\.top_p +float +0\.95 +0 < x ≤ 1 +share of the probability", out, re.MULTILINE)
    shown = json.loads(coevo("options", "run", "--json")[1])
    assert (shown["kind"], shown["name"]) == ("run", "")
    assert [o["default"] for o in shown["options"] if o["name"] == "loggers"] == [["progress"]]


def test_options_of_a_task_list_what_its_instances_take_also_of_a_folder(coevo):
    shown = json.loads(coevo("options", "task", "kp_construct", "--json")[1])["options"]
    rules = next(option for option in shown if option["name"] == "instance_options.rules")
    assert (rules["type"], rules["default"]) == ("'fitting' | 'paper' | 'paper_test'", "fitting")
    assert all(option["help"] for option in shown)
    assert "instance_options." not in coevo("options", "task", "asp_construct")[1]
    coevo("new", "problem", "mine")
    out = coevo("options", "task", "mine")[1]
    assert out.startswith("task heuristics (plugin heuristics)")
    assert re.search(r"^instance_options\.count ", out, re.MULTILINE)
    code, _, said = coevo("options", "task", "./nowhere")
    assert (code, said.partition(";")[0]) == (2, "coevo: no folder './nowhere' to read a problem from")


@pytest.mark.parametrize("name", ["noise", "sandbox"])
def test_bench_prints_the_ratio(coevo, monkeypatch, name):
    given = {}

    def fake(**options):
        given.update(options)
        return {"ratio": 4.5, "rounds": options["rounds"]}

    monkeypatch.setattr(f"coevo.tools.bench.{name}.bench_{name}", fake)
    code, out, _ = coevo("bench", name, "--rounds", "2", "--json")
    assert (code, json.loads(out), given) == (0, {"ratio": 4.5, "rounds": 2}, {"rounds": 2})
    assert coevo("bench", name, "--rounds", "2")[1] == "ratio   4.5\nrounds  2\n"


def test_models_are_listed(coevo):
    rows = json.loads(coevo("model", "list", "--json")[1])
    assert {row["name"]: row["state"] for row in rows}["smollm2-135m"] == "not pulled"
    assert "smollm2-135m  not pulled" in coevo("model", "list")[1]


def test_help_and_version(coevo):
    for arguments in ([], ["--help"]):
        code, out, said = coevo(*arguments)
        assert (code, said) == (0, "")
        assert "resume" in out
    assert coevo("bench")[0] == 0
    assert coevo("--version")[1].startswith("coevo 0.")


def test_show_escapes_what_would_act_on_a_terminal_and_bears_a_damaged_best(coevo, a):
    path = Path("runs/a/best/best.json")
    path.write_text(json.dumps({"answer": "x\x1b[31m\x07"}))
    shown = coevo("show", "a")[1]
    assert "x\\x1b[31m\\x07" in shown
    assert "\x1b" not in shown
    path.write_text("[]")
    assert coevo("show", "a")[0] == 0


def test_hints_can_be_pasted(coevo, small):
    out = coevo("run", *small, "--generations", "1", "--name", "a b", "--quiet")[1]
    assert "look further: coevo show 'a b', coevo report 'a b'" in out


TALKING = '''
import coevo
import typer

print("on import")


@coevo.hookimpl
def register_tasks(tasks):
    print("in a hook")


@coevo.hookimpl
def register_commands(app):
    @app.command()
    def talk(as_json: bool = typer.Option(False, "--json")) -> None:
        """Print JSON of one's own."""
        print('{"mine": true}')
'''


@pytest.mark.parametrize(
    "arguments", [["tasks", "--json"], ["plugins", "--json"], ["options", "param", "es", "--json"]]
)
def test_what_a_plugin_prints_is_not_in_the_json_of_a_command(in_empty_folder, coevo, arguments):
    Path("coevo_plugin.py").write_text(TALKING, "utf-8")
    code, out, said = coevo(*arguments, "--trust")
    assert code == 0
    json.loads(out)
    assert "on import" in said
    assert "in a hook" in said


def test_the_json_of_a_plugins_own_command_is_on_standard_output(in_empty_folder, coevo):
    Path("coevo_plugin.py").write_text(TALKING, "utf-8")
    code, out, _ = coevo("talk", "--json", "--trust")
    assert (code, json.loads(out)) == (0, {"mine": True})


def test_help_is_on_standard_output_whatever_else_is_asked(coevo):
    code, out, said = coevo("tasks", "--json", "--help")
    assert (code, said) == (0, "")
    assert "--json" in out


PRINTS = """
import coevo
import fakes

print("at import")

class Talks(fakes.AimTask):
    def brief(self):
        print("brief")
        return super().brief()

@coevo.hookimpl
def register_tasks(tasks):
    print("hook")
    tasks.register("talks", Talks)

@coevo.hookimpl
def batch_finished(report):
    print("observer")
"""


@pytest.mark.parametrize("options", [[], ["--quiet"]])
def test_what_a_plugin_prints_is_on_standard_error_and_what_we_say_is_not(coevo, small, options):
    Path("talks.py").write_text(PRINTS, "utf-8")
    changed = ["talks" if word == "aim" else word for word in small]
    code, out, said = coevo("run", "--plugin", "talks.py", *changed, "--generations", 1, "--name", "t", *options)
    assert code == 0
    assert {"at import", "brief", "hook", "observer"} <= set(said.splitlines())
    assert not {"at import", "brief", "hook", "observer"} & set(out.splitlines())
    assert ("generation 1/1" in out) == (not options)  # the progress is no stray print
    code, out, _ = coevo("show", "t", "--json")
    assert json.loads(out)["status"] == "finished"
