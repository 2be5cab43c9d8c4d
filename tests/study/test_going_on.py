"""A study that was cut, changed or failed: what is done is kept, what is missing is done, the rest is said."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from study_kit import FAKES

from coevo.runs.chunks import read_chunks
from coevo.runs.folder import RunFolder, clear_stillborn
from coevo.tools.study.conduct import Progress
from coevo.tools.study.plan import read_study

PATIENCE_SECONDS = 300
BROKEN = str(Path(__file__).with_name("broken_engine.py"))


def edited(old, new, path="small.toml"):
    text = Path(path).read_text()
    assert old in text
    Path(path).write_text(text.replace(old, new, 1))


def without_seconds(value):
    if isinstance(value, dict):
        return {k: without_seconds(v) for k, v in value.items() if k not in ("seconds", "path")}
    return [without_seconds(v) for v in value] if isinstance(value, list) else value


def kept(folder):
    """What a kill must not cost: whole lines of every journal, whole chunks of every batch."""
    journals = {p: p.read_bytes() for p in folder.glob("*/journal.jsonl")}
    chunks = {p: [list(chunk) for chunk in read_chunks(p)] for p in folder.glob("*/rollouts/*")}
    return {p: text[: text.rfind(b"\n") + 1] for p, text in journals.items()}, chunks


def begin(file, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "coevo", "study", file, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(FAKES).parent)},
    )  # fmt: skip


def wait_for(condition):
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


@pytest.fixture
def slow(small):
    """The same study, but a call takes a while and chunks are small."""
    edited("[base.es]", "[base.numbers]\ndelay = 0.05\n[base.rollouts]\nchunk = 3\n[base.es]")
    return small


def test_a_killed_study_repeats_nothing_and_ends_as_an_unbroken_one(coevo, slow):
    process = begin(slow)
    third = RunFolder(Path("runs/small/none+fixed-s1"))
    wait_for(lambda: third.chunk_file(1, 0).exists())
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    statuses = json.loads(Path("runs/small/study.json").read_text())["arms"]
    assert [[run["status"] for run in arm["runs"]] for arm in statuses.values()] == [["finished", "waiting"]] * 2
    journals, chunks = kept(Path("runs/small"))
    finished = [p for p in journals if p.parent.name.endswith("-s3")]
    before = {p: p.stat().st_mtime_ns for p in finished}
    code, out, said = coevo("study", slow, "--json")
    assert code == 0
    assert [line.split(", ", 1)[1].split(";")[0] for line in said.splitlines() if " of 4, " in line] == [
        "none+fixed-s1, goes on", "es+fixed-s1, starts"
    ]  # fmt: skip
    assert {p: p.stat().st_mtime_ns for p in finished} == before
    journals_after, chunks_after = kept(Path("runs/small"))
    for path, text in journals.items():
        assert journals_after[path].startswith(text)
    for path, those in chunks.items():
        assert chunks_after[path][: len(those)] == those
    whole = json.loads(coevo("study", slow, "--json", "--runs", "whole", "--quiet")[1])
    assert without_seconds(json.loads(out)) == without_seconds(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_to_go_on(slow, number, coevo):
    process = begin(slow, "--runs", "my runs")
    wait_for(lambda: RunFolder(Path("my runs/small/es+fixed-s3")).chunk_file(0, 1).exists())
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "coevo: interrupted; go on with: coevo study small.toml --runs 'my runs'"
    assert "Traceback" not in said
    code, _, said = coevo("study", slow, "--runs", "my runs")
    assert code == 0
    assert "run 2 of 4, es+fixed-s3, goes on" in said


def test_an_interrupt_between_runs_says_it_too(coevo, small, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("coevo.app.launch.parts", interrupted)
    code, out, said = coevo("study", small, "--quiet")
    assert (code, out, said) == (130, "", "coevo: interrupted; go on with: coevo study small.toml\n")


CHANGES = {
    ("sigma = 0.3", "sigma = 0.25"): "run 'es+fixed-s3' was made with es.sigma = 0.3 and the study now asks for "
    "es.sigma = 0.25; give the study another name, or remove 'runs/small/es+fixed-s3'",
    ("generations = 2", "generations = 3"): "run 'none+fixed-s3' was made with generations = 2 and the study now asks "
    "for generations = 3",
    (
        "samples = 3",
        "",
    ): "run 'es+fixed-s3' was made with fixed.samples = 3 and the study now asks for no fixed.samples",
    ("answers = 6", "answers = 7"): "probe.answers = 6 and the study now asks for probe.answers = 7",
    ("[base.es]", "[base.sampling]\ntemperature = 0.5\n[base.es]"): "sampling.temperature = 1.0 and the study now asks",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[0])
def test_a_run_made_with_another_configuration_is_refused(coevo, small, change):
    edited("seeds = [3, 1]", "seeds = [3]")
    assert coevo("study", small, "--quiet")[0] == 0
    edited(*change)
    code, out, said = coevo("study", small)
    assert (code, out) == (2, "")
    assert said.startswith("coevo: run '")
    assert said.count("\n") == 1
    assert CHANGES[change] in said


def test_what_changes_no_result_may_be_changed(coevo, small):
    edited("seeds = [3, 1]", "seeds = [3]")
    first = json.loads(coevo("study", small, "--json")[1])
    Path("plugins").mkdir()
    Path("plugins/fakes.py").write_text(Path(FAKES).read_text())
    edited(FAKES, "plugins/fakes.py")
    edited("[base.es]", "[base.progress]\nplain = true\n[base.es]")
    edited("generations = 2", "generations = 2\nanchor_seconds = 5.0\nloggers = []")
    code, out, said = coevo("study", small, "--json")
    assert (code, said) == (0, "")
    assert json.loads(out) == first


def test_a_damaged_configuration_names_the_run(coevo, small):
    assert coevo("study", small, "--quiet")[0] == 0
    Path("runs/small/none+fixed-s1/config.toml").write_text("nothing = 3")
    code, out, said = coevo("study", small, "--quiet")
    assert code == 1
    assert said.startswith(
        "coevo: run 'none+fixed-s1' failed: 'runs/small/none+fixed-s1/config.toml': unknown configuration key"
    )
    assert "3 of 4 runs finished" in out


def test_a_changed_journal_is_one_line(coevo, small):
    assert coevo("study", small, "--quiet")[0] == 0
    edited('"calls": 6', '"calls": 5', "runs/small/none+fixed-s1/journal.jsonl")
    code, out, said = coevo("study", small, "--quiet")
    assert (code, said.count("\n")) == (1, 2)
    assert "none+fixed-s1/journal.jsonl" in said
    assert "3 of 4 runs finished" in out


FAILING = """
[arms.silent]
engine = "silent"
param = "none"
[arms.fault]
engine = "fault"
"""


def test_arms_that_fail_do_not_stop_the_others(coevo, small):
    edited("plugins = [", f'plugins = ["{BROKEN}", ')
    edited('[arms."none', f'{FAILING}[arms."none')
    code, out, said = coevo("study", small, "--quiet")
    assert code == 1
    lines = out.splitlines()
    assert lines[0].startswith("study small: 4 of 8 runs finished")
    assert next(line for line in lines if line.startswith("silent")).startswith("silent      0 of 2  -  ")
    assert next(line for line in lines if line.startswith("es+fixed")).startswith("es+fixed    2 of 2  100.0 %")
    assert "runs/small/silent-s3: failed: every rollout of the batch failed with 'engine_error'" in out
    fault = "engine 'fault' cannot be made: ZeroDivisionError: no engine (broken_engine.py:"
    assert f"runs/small/fault-s3: failed: {fault}" in out
    assert said.count(f"coevo: run 'fault-s1' failed: {fault}") == 1
    assert "Traceback" not in said  # the line has the place
    assert said.splitlines()[-1] == (
        "coevo: 4 of the study's runs failed (silent-s3, silent-s1, fault-s3, fault-s1); "
        "the same command tries them again"
    )
    result = json.loads(Path("runs/small/study.json").read_text())
    silent, es = result["arms"]["silent"], result["arms"]["es+fixed"]
    assert (silent["finished"], silent["valid_rate"], silent["calls"]) == (0, None, None)
    assert [(run["status"], run["valid_rate"]) for run in silent["runs"]] == [("failed", None)] * 2
    assert [run["valid_points"] for run in es["runs"]] == [None, None]  # the first arm has no number
    assert "- runs/small/silent-s3: failed: " in Path("runs/small/table.md").read_text()


def test_a_failed_run_is_tried_again(coevo, small):
    edited("plugins = [", 'plugins = ["engine.py", ')
    edited('param = "none"', 'param = "none"\nengine = "tired"')
    broken = Path(BROKEN).read_text()
    Path("engine.py").write_text(broken)
    assert coevo("study", small, "--quiet")[0] == 1
    Path("engine.py").write_text(broken.replace('"tired", Tired', '"tired", fakes.NumberEngine'))
    code, _, said = coevo("study", small)
    assert code == 0, said
    assert "run 1 of 4, none+fixed-s3, goes on" in said
    assert "es+fixed" not in said


def test_a_user_mistake_that_only_a_run_finds_is_a_failure_of_its_arm(coevo, small):
    edited('[arms."es+fixed".fixed]', '[arms."es+fixed".numbers]\nadapts = false\n[arms."es+fixed".fixed]')
    code, out, said = coevo("study", small, "--quiet")
    assert code == 1
    assert out.startswith("study small: 2 of 4 runs finished")
    assert "run 'es+fixed-s3' failed: parameter updater 'es' cannot train on engine 'numbers'" in said
    assert not Path("runs/small/es+fixed-s3").exists()


def refused(coevo, *, engine, budget, said):
    edited("plugins = [", f"plugins = [{BROKEN!r}, ")
    edited('engine = "numbers"', f'engine = "{engine}"\n{budget}')
    code, out, error = coevo("study", "small.toml")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert error.startswith(f"coevo: arm 'none+fixed': {said}")
    assert not Path("runs").exists()


def test_a_budget_of_calls_too_small_for_a_first_batch_is_refused_before_the_first_run(coevo, small):
    said = "--calls is too small for the first batch, which asks for 6 answers and 6 more at the end"
    refused(coevo, engine="fault", budget="calls = 5", said=said)


def test_a_budget_of_tokens_too_small_for_a_first_batch_is_refused_before_the_first_run(coevo, small):
    # Two prompts of three tokens and answers of four: one batch and the probe at the end.
    said = "--tokens is too small for the first batch, which asks for 6 answers and may take 42 tokens"
    refused(coevo, engine="counting", budget="tokens = 83", said=said)


def test_a_budget_that_just_reaches_is_not_refused(coevo, small):
    edited("plugins = [", f"plugins = [{BROKEN!r}, ")
    edited('engine = "numbers"', 'engine = "counting"\ntokens = 84')
    said = coevo("study", small)[2]
    assert said.startswith("coevo: arm 'es+fixed': --tokens is too small")  # the first arm's would do


def test_sigterm_between_two_runs_ends_a_study_with_how_to_go_on(small):
    edited("plugins = [", f"plugins = [{BROKEN!r}, ")
    edited('engine = "numbers"', 'engine = "ending"')
    process = begin(small)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert said.splitlines()[-1] == "coevo: interrupted; go on with: coevo study small.toml"
    assert RunFolder(Path("runs/small/none+fixed-s3")).journal.history().finished
    assert not Path("runs/small/es+fixed-s3").exists()


def test_two_at_once_are_refused_in_one_line(coevo, small):
    Path("runs/small").mkdir(parents=True)
    with Path("runs/small/lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("123")
        file.flush()
        assert coevo("study", small) == (2, "", "coevo: study 'small' is going in process 123\n")


def test_a_run_that_somebody_else_goes_on_with_is_refused_before_another_starts(coevo, small):
    edited("[3, 1]", "[1]")
    assert coevo("study", small, "--quiet")[0] == 0
    folder = RunFolder(Path("runs/small/es+fixed-s1"))
    lines = folder.journal.path.read_text().splitlines(keepends=True)
    folder.journal.path.write_text("".join(lines[:-1]))  # without its end
    edited("[1]", "[3, 1]")
    with folder.lock():
        code, out, said = coevo("study", small)
    assert (code, out) == (2, "")
    assert said == (
        f"coevo: run 'es+fixed-s1' is going in process {os.getpid()}; "
        "watch it with: coevo show runs/small/es+fixed-s1\n"
    )
    assert not Path("runs/small/none+fixed-s3").exists()


def test_a_folder_in_which_a_kill_left_nothing_is_no_obstacle(coevo, small):
    for part in ("rollouts", "contexts"):
        Path("runs/small/none+fixed-s3", part).mkdir(parents=True)
    Path("runs/small/none+fixed-s3/.0123456789abcdef.new").write_text("ta")
    assert coevo("study", small, "--quiet")[0] == 0
    study, _ = read_study(Path(small))
    foreign = Path("elsewhere/small/none+fixed-s3/rollouts/mine")
    foreign.mkdir(parents=True)
    clear_stillborn(read_study(Path(small), "elsewhere")[0].runs[0].subject.path)
    assert foreign.is_dir()
    clear_stillborn(study.runs[0].subject.path)
    assert study.runs[0].subject.path.is_dir()


def test_the_time_left_is_that_of_the_arms_finished_runs(coevo, small, capsys):
    study, _ = read_study(Path(small))
    now = [0.0]
    progress = Progress(study, clock=lambda: now[0])
    assert len(progress.missing()) == 4
    coevo("study", small, "--quiet")
    for run, seconds in zip(study.runs[:2], (100.0, 1000.0), strict=True):
        reading = Progress(study).readings[run.subject.path]
        progress.readings[run.subject.path] = replace(reading, numbers={**reading.numbers, "seconds": seconds})
    now[0] = 1105.0
    progress.starts(study.runs[2])
    assert capsys.readouterr().err == (
        "coevo: study small: run 3 of 4, none+fixed-s1, goes on; 18:25 elapsed, about 18:20 left\n"
    )


def test_a_damaged_run_fails_by_itself_and_the_others_go_on(coevo, small):
    assert coevo("study", small, "--quiet")[0] == 0
    journal = Path("runs/small/es+fixed-s3/journal.jsonl")
    journal.write_text(journal.read_text().replace('"calls": 6', '"calls": 5', 1))
    Path("runs/small/none+fixed-s3/config.toml").write_text("no toml")
    edited("seeds = [3, 1]", "seeds = [3, 1, 2]")
    code, out, said = coevo("study", small, "--quiet", "--json")
    runs = {run["name"]: run for arm in json.loads(out)["arms"].values() for run in arm["runs"]}
    assert code == 1
    assert {name for name, run in runs.items() if run["status"] == "failed"} == {"es+fixed-s3", "none+fixed-s3"}
    assert "differs from its checksum" in runs["es+fixed-s3"]["message"]
    assert runs["es+fixed-s2"]["status"] == "finished"
    assert "Traceback" not in said


def test_a_strangers_folder_in_the_way_is_named_with_what_to_do(coevo, small):
    folder = Path("runs/small/es+fixed-s1")
    folder.mkdir(parents=True)
    (folder / "mine.txt").write_text("")
    code, _, said = coevo("study", small, "--quiet")
    assert code == 1
    assert "exists and is no run; rename or remove it" in said


def test_a_study_is_no_run(coevo, small):
    coevo("study", small, "--quiet")
    code, _, said = coevo("show", "small")
    assert (code, said.count("\n")) == (2, 1)
    assert "'small' is a study and no run; name one of its runs, such as runs/small/es+fixed-s1" in said
    assert "it is a study; run it with: coevo study FILE" in coevo("run", small)[2]
