"""Every mistake is one line on standard error and exit code 2, before anything is loaded or started."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from coevo.cli import main
from coevo.cli.application import BROKEN_PIPE
from coevo.errors import RunError

FAKES = str(Path(__file__).parents[1] / "fakes.py")
SMALL = f"--plugin {FAKES} --task aim --engine numbers --context fixed"
LONG = "x" * 300


@pytest.fixture(autouse=True)
def _files():
    Path("FILE").write_text("hi")
    Path("README.md").write_text("hi")
    Path("EMPTYDIR").mkdir()
    Path("taken").mkdir()
    Path("taken/mine.txt").touch()
    Path("missing_key.toml").write_text("generatons = 3")
    Path("binary.toml").write_bytes(b"\x00\xff\xfe")
    Path("broken.toml").write_text("a = [")
    Path("nan.toml").write_text("anchor_seconds = nan")
    Path("inf.toml").write_text("[es]\nsigma = inf")
    Path("plugins.toml").write_text("plugins = 3")
    Path("nul.toml").write_text('runs = "a\\u0000b"')
    Path("syntax.py").write_text("def x(:")
    Path("imports.py").write_text("import not_there")
    Path("leaves.py").write_text("raise SystemExit(3)")
    Path("raises.py").write_text("import coevo\n@coevo.hookimpl\ndef register_tasks(tasks):\n    raise KeyError('x')\n")


MISTAKES = {
    "run --contxt eoh": "no such option '--contxt'; did you mean '--context'?",
    "run --param esx": "no parameter updater named 'esx'; did you mean 'es'?",
    "run --context eohh": "no context updater named 'eohh'; did you mean 'eoh'?",
    "run --engine transformer": "no engine named 'transformer'; did you mean 'transformers'?",
    "run --set es.sigm=1": "parameter updater 'es' has no option 'sigm'; did you mean 'sigma'?",
    "run --set es.sigma=nan": "option 'sigma' must be a finite number, got nan; see: coevo options param es",
    "run --set es.sigma=-1": "option 'sigma' got -1: input should be greater than or equal to 0",
    "options run es": "coevo options run got the name 'es'; it takes none",
    "options engine": "coevo options engine needs a name; there are: openai, ray, transformers, vllm",
    "run --set vllm.rows=0 --engine vllm": "option 'rows' got 0: input should be greater than or equal to 1 "
    "(rows: how many requests are decoded together at most)",
    "run --set es.sigma=big": "option 'sigma' got 'big': input should be a valid number",
    "run --set es=1": "'es' got 1: it should be a table of options; write es.option = value",
    "run --set foo": "--set 'foo' is no assignment; write it as --set plugin.option=value",
    "run --set =3": "--set '=3' is no assignment",
    "run --set generations.x=2": "generations got {'x': 2}",
    "run --set sampling.temprature=2": "'sampling.temprature'; did you mean 'temperature'?",
    "run --set eohh.x=1": "unknown configuration key 'eohh'; did you mean 'eoh'?",
    "run --set sample.batch=3": "options are given for 'sample', which this run does not use",
    "run --population 1": "population must be at least 2, got 1",
    "run --population 0": "population got 0",
    "run --param none --population 4": "parameter updater 'none' has no population; leave out --population",
    "run --generations -3": "generations got -3: input should be greater than or equal to 1",
    "run --generations x": "invalid value for '--generations': input should be a valid integer",
    "run --calls 1e9": "unable to parse string as an integer, got '1e9'; see: coevo run --help",
    "serve x --port 99999999": "input should be less than or equal to 65535, got '99999999'",
    "check tsp_construct --workers 0": "input should be greater than or equal to 1, got '0'",
    "check tsp_construct --workers 999999999999": "input should be less than or equal to 1024, got '999999999999'",
    "run --set tsp_construct.workers=999999999999": "workers must be at most 1024, got 999999999999",
    "run --set sampling.max_new_tokens=1000000000000000000000": "input should be less than 2147483648",
    "run --set sampling.top_k=1000000000000000000000": "input should be less than 2147483648",
    "run --set rollouts.chunk=1000000000000000000000": "input should be less than 9223372036854775808",
    "run --set es.alpha=1e300": "option 'alpha' got 1e+300: input should be less than or equal to 1000",
    "run --set es.sigma=1e300": "option 'sigma' got 1e+300: input should be less than or equal to 1000",
    "run --set es.sigma_end=1e300": "option 'sigma_end' got 1e+300: input should be less than or equal to 1000",
    "run --model=": "model got ''; expected a folder, owner/name on a hub, or one of: ",
    "bench noise --rounds 99999999999": "--rounds got 99999999999: it should be 1,000,000 or less",
    "run --param nope": "no parameter updater named 'nope'; did you mean 'none'?",
    "options engine nope": "no engine named 'nope'; expected one of: ",
    "run --calls 0": "calls got 0",
    "run --tokens -5": "tokens got -5",
    "run --seed -1": "seed got -1",
    "run --seed 99999999999999999999": "seed got 99999999999999999999",
    "run --task nowhere": "no task named 'nowhere'; expected one of: ",
    "run --task tsp_constrct": "no task named 'tsp_constrct'; did you mean 'tsp_construct'?",
    "run --task ./nowhere": "no folder './nowhere' to read a problem from; for tasks by name see: coevo tasks",
    "run --task EMPTYDIR": "EMPTYDIR",
    "run --model EMPTYDIR": "the model folder 'EMPTYDIR' is empty; expected config.json and safetensors weights",
    "run --model FILE": "model 'FILE' is a file",
    "run --model ./nowhere": "there is no model folder './nowhere'",
    "run --model nowhere": "no model named 'nowhere'",
    "run missing.toml": "no configuration file 'missing.toml'; see the folder configs/ for examples",
    "run missing_key.toml": "unknown configuration key 'generatons'; did you mean 'generations'?",
    "run EMPTYDIR": "cannot read the configuration file 'EMPTYDIR': Is a directory",
    "run FILE/x.toml": "no configuration file 'FILE/x.toml'",
    "run binary.toml": "'binary.toml' is not UTF-8",
    "run broken.toml": "'broken.toml' is not valid TOML",
    "run nan.toml": "anchor_seconds got nan: input should be a finite number",
    "run inf.toml": "option 'sigma' must be a finite number, got inf",
    "run nul.toml": "runs got 'a\\x00b'",
    "run plugins.toml": "plugins got 3: it should be a list of Python files",
    "run broken.toml extra": "got unexpected extra argument",
    f"run {SMALL} --runs FILE/x": "cannot make the run's folder 'FILE/x/aim-es-fixed-1'",
    f"run {SMALL} --name FILE/x": "cannot make the run's folder 'FILE/x'",
    f"run {SMALL} --runs /proc/x": "nothing can be made in '/",
    f"run {SMALL} --name {LONG}": "a name may have 255 bytes",
    f"run {SMALL} --name ./taken": "'taken' exists and is no run; choose another with --name or --runs",
    f"run {SMALL} --set loggers=[1]": "loggers.0 got 1",
    f"run {SMALL} --set loggers=['progress','progress']": "each may be named once",
    "run --plugin missing.py": "no plugin file",
    "run --plugin syntax.py": "does not import: SyntaxError: invalid syntax (syntax.py, line 1)",
    "run --plugin imports.py": "does not import: ModuleNotFoundError: No module named 'not_there'",
    "run --plugin leaves.py": "does not import: SystemExit: 3",
    "run --plugin raises.py": "plugin 'raises': register_tasks raised KeyError: 'x'",
    "run --plugin README.md": "is no Python file",
    "show README.md": "'README.md' is no run: a run is a folder with a config.toml and a journal.jsonl, or its name",
    "show EMPTYDIR": "'EMPTYDIR' is no run",
    f"show {LONG}": "no run named",
    "show": "missing argument 'RUN'; see: coevo show --help",
    "show none --jsn": "no such option '--jsn'; did you mean '--json'?",
    "resume none": "no run named 'none' in 'runs'; there are none yet, start one with: coevo run",
    "resume README.md": "'README.md' is no run",
    "replay none": "no run named 'none'",
    "export none --out FILE/x": "no run named 'none'",
    "export none": "missing option '--out'",
    "options": "missing argument 'KIND'",
    "options tsk x": "no kind 'tsk'; did you mean 'task'?",
    "options task nope": "no task named 'nope'",
    "plugins --plugin missing.py": "no plugin file 'missing.py'",
    "tasks --plugin syntax.py": "does not import: SyntaxError",
    "model pull nowhere": "no model named 'nowhere'",
    "model pul": "no such command 'pul'; did you mean 'pull'?",
    "bench noise --rounds 0": "--rounds got 0: it should be 1 or more",
    "rnu": "no such command 'rnu'; did you mean 'run'?",
    "--nope": "no such option '--nope'; see: coevo --help",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(coevo, line, monkeypatch):
    # Names and options are refused before any part is made, the rest before one is started.
    first = "coevo_heuristics.task.HeuristicTask.start" if line in MADE else "coevo.app.launch.parts"
    monkeypatch.setattr(first, _started)
    code, out, said = coevo(*line.split())
    assert (code, out) == (2, ""), said
    assert said.startswith("coevo: ")
    assert said.count("\n") == 1
    assert MISTAKES[line] in said
    assert "Traceback" not in said
    assert not Path("runs").exists()


MADE = {
    "run --population 1",
    "run --set tsp_construct.workers=999999999999",
    "run --task EMPTYDIR",
    *(line for line in MISTAKES if line.startswith("run --model")),
}


def _started(*_):
    raise AssertionError("something was started")


def test_every_task_of_the_issue_is_refused_by_a_real_process(tmp_path):
    for arguments in (["run", "--contxt", "eoh"], ["show", "README.md"], ["run", b"\xff.toml"]):
        done = subprocess.run([*COEVO, *arguments], capture_output=True, check=False, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stdout == b""
        assert done.stderr.startswith(b"coevo: ")
        assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("key", ["name", "runs"])
def test_a_line_break_in_a_name_is_told_in_words(coevo, key):
    code, out, said = coevo("run", f"--{key}", "a\nb")
    assert (code, out) == (2, "")
    expected = "expected a name or path without line breaks and control characters"
    told = {"name": "of the run, and of its folder", "runs": "the folder with all runs"}[key]
    assert said == f"coevo: {key} got 'a\\nb': {expected} ({key}: {told})\n"


COEVO = [sys.executable, "-c", "import sys; from coevo.cli import main; sys.exit(main())"]


def test_a_working_folder_that_is_gone_is_one_line(coevo, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert coevo("plugins") == (
        2,
        "",
        "coevo: the working folder cannot be used: No such file or directory; change to another\n",
    )


@pytest.mark.parametrize("given", ["es.sigma=" + "x" * 100_000, "es.sigma=" + "9" * 4000, "y" * 50_000])
def test_of_a_very_long_value_the_ends_are_shown(coevo, given):
    code, _, said = coevo("run", "--set", given)
    assert (code, said.count("\n")) == (2, 1)
    assert " … " in said
    assert len(said) < 1000


def test_an_argument_that_is_no_text_is_named(coevo):
    assert coevo("run", "\udcff.toml") == (2, "", "coevo: argument '\\udcff.toml' is not UTF-8\n")


def test_export_below_a_file_is_refused_before_the_weights_are_rebuilt(coevo, small, monkeypatch):
    coevo("run", *small, "--generations", "1", "--name", "a", "--quiet")
    monkeypatch.setattr("coevo.runs.rebuild.master_of", _started)
    code, out, said = coevo("export", "a", "--out", "FILE/x")
    assert (code, out) == (2, "")
    assert said == f"coevo: cannot export to 'FILE/x': it cannot be made: {str(Path('FILE').absolute())!r} is a file\n"
    assert coevo("export", "a", "--out", "FILE")[2] == (
        "coevo: cannot export to 'FILE': it is a file; give a folder that does not exist\n"
    )
    assert coevo("export", "a", "--out", "x", "--dtype", "float8")[2] == (
        "coevo: cannot export as 'float8'; did you mean 'float32'?\n"
    )
    assert "expected 'best', 'last' or a generation" in coevo("replay", "a", "--at", "9")[2]


def test_a_name_that_is_taken_says_how_to_go_on(coevo, small):
    coevo("run", *small, "--generations", "1", "--name", "a", "--quiet")
    code, _, said = coevo("run", *small, "--name", "a")
    assert code == 2
    assert said == "coevo: run 'a' exists in 'runs'; go on with: coevo resume a, or take another --name\n"
    code, _, said = coevo("run", *small, "--name", "a", "--runs", "runs/../runs")
    assert "coevo resume runs/../runs/a" in said


def test_a_damaged_run_is_one_line(coevo, small):
    coevo("run", *small, "--generations", "1", "--name", "a", "--quiet")
    for file in ("config.toml", "run.json", "journal.jsonl"):
        path = Path("runs/a") / file
        whole = path.read_bytes()
        path.write_bytes(b"{\n" + whole)
        code, out, said = coevo("show", "a")
        assert code in (1, 2), file
        assert (out, said.count("\n")) == ("", 1)
        path.write_bytes(whole)
    assert coevo("show", "a")[0] == 0


def test_a_failure_of_the_run_is_exit_code_1(coevo, small, monkeypatch):
    def fail(*_):
        raise RunError("the engine\nis on fire")

    monkeypatch.setattr("coevo.loop.evolve.Loop._step", fail)
    code, _, said = coevo("run", *small, "--name", "a", "--quiet")
    assert (code, said) == (1, "coevo: the engine is on fire; go on with: coevo resume a\n")
    assert "failed" in coevo("show", "a")[1]


def test_a_fault_keeps_its_traceback(small, monkeypatch):
    monkeypatch.setattr("coevo.app.blueprint.Blueprint.checked", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main(["run", *small])


def test_an_observer_that_raises_is_named_and_the_run_goes_on(coevo, small):
    Path("bad.py").write_text(
        "import coevo\n@coevo.hookimpl\ndef batch_finished():\n    raise ValueError('no\\ndisk')\n"
    )
    code, _, said = coevo("run", *small, "--plugin", "bad.py", "--generations", "1", "--quiet")
    assert code == 0
    error = "ValueError: no disk (bad.py:4, in batch_finished)"
    assert said == f"coevo: observer 'bad' failed: {error}; the run goes on\n" * 2


def test_a_reader_that_leaves_is_no_error(tmp_path, small):
    done = subprocess.run([*COEVO, "run", *small, "--name", "a", "--quiet"], check=True, cwd=tmp_path)
    shown = subprocess.Popen([*COEVO, "show", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path)
    shown.stdout.close()
    said = shown.stderr.read()
    shown.stderr.close()
    assert (shown.wait(), said, done.returncode) == (BROKEN_PIPE, b"", 0)


def test_a_run_whose_reader_leaves_goes_on(tmp_path, small):
    run = subprocess.Popen(
        [*COEVO, "run", *small, "--name", "a"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    run.stdout.close()
    said = run.stderr.read()
    run.stderr.close()
    assert (run.wait(), said) == (BROKEN_PIPE, b"")
    assert '"reason": "generations"' in (tmp_path / "runs/a/journal.jsonl").read_text()


@pytest.mark.parametrize("part", ["journal.jsonl", "run.json", "rollouts/g0000-b00.jsonl.zst", "lock", "config.toml"])
@pytest.mark.parametrize("command", ["show", "resume", "report", "replay"])
def test_a_file_of_a_run_that_is_a_folder_is_one_line(coevo, tmp_path, part, command):
    assert coevo(
        "run", "--plugin", FAKES, "--task", "aim", "--engine", "numbers", "--context", "fixed", "--param", "none",
        "--generations", "1", "--name", "a", "--quiet",
    )[0] == 0  # fmt: skip
    path = Path("runs/a", part)
    path.unlink()
    path.mkdir()
    code, _, complaint = coevo(command, "a")
    assert code in (0, 1, 2)
    assert complaint.count("\n") <= 1
    if part == "journal.jsonl":
        assert (code, complaint) == (
            1, "coevo: 'runs/a/journal.jsonl' cannot be read: Is a directory; the run's folder is damaged\n"
        )  # fmt: skip


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_half_a_surrogate_pair_ends_no_command_in_any_locale(errors):
    from coevo.cli.application import _forgive

    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=errors)
    _forgive(stream, "replace")
    print("\ud800", file=stream, flush=True)
    assert stream.buffer.getvalue() == b"?\n"
