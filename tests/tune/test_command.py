"""`coevo tune`: what it measures on small engines, what it prints, and that it leaves no trace."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coevo.cli import tune as command
from coevo.host.config import parse_assignment
from coevo.tools.tune import conduct
from coevo.tools.tune.statistics import f_quantiles

COEVO = [sys.executable, "-c", "import sys; from coevo.cli import main; sys.exit(main())"]
SIGMAS = ["--sigmas", "0.05,0.2", "--members", "6", "--answers", "6"]


def measured(coevo, *arguments):
    code, out, said = coevo("tune", *arguments, "--json")
    assert code == 0, said
    return json.loads(out)


def test_members_of_a_sigma_that_matters_are_told_apart(coevo, small):
    found = measured(coevo, *small, *SIGMAS)
    assert [line["sigma"] for line in found["sigmas"]] == [0.05, 0.2]
    assert (found["members"], found["answers"], found["examples"]) == (6, 6, 1)
    assert found["calls"] == 4 * 6 + 2 * 36 == found["tokens"] // 5
    for line in found["sigmas"]:
        assert line["obstacle"] == ""
        assert (line["moved"], line["valid"]) == (1.0, 1.0)
        assert line["f_interval"][0] > 1.0
        assert line["credit"] == pytest.approx(line["centre_credit"] + line["change"], abs=line["change_margin"])
    assert found["proposal"]["alpha"] == 2 * found["proposal"]["sigma"]
    low, high = f_quantiles(5, 25, 1.0 - 0.05 / 2)  # both intervals hold together
    line = found["sigmas"][0]
    assert line["f_interval"] == pytest.approx([line["f"] / high, line["f"] / low])


def test_nothing_is_written_and_the_same_is_measured_again(coevo, small):
    first, second = (measured(coevo, *small, *SIGMAS) for _ in range(2))
    for found in (first, second):
        found.pop("seconds")
        for line in found["sigmas"]:
            line.pop("seconds")
    assert first == second
    assert os.listdir() == []
    assert measured(coevo, *small, *SIGMAS, "--seed", "1")["sigmas"] != second["sigmas"]


def test_where_all_is_luck_the_verdict_says_so_and_proposes_nothing(coevo, chaotic):
    luck = ["--set", "chaotic.spread=3.0", "--sigmas", "1e-6,2e-6", "--members", "8", "--answers", "12"]
    found = measured(coevo, *chaotic, *luck)
    assert [line["obstacle"] for line in found["sigmas"]] == ["noise", "noise"]
    assert found["proposal"] is None
    assert found["verdict"].startswith("no sigma separates members: their differences may be luck")
    code, out, _ = coevo("tune", *chaotic, *luck)
    assert code == 0
    assert out.splitlines()[-1] == f"verdict: {found['verdict']}"


def test_less_luck_takes_fewer_answers(coevo, chaotic):
    sizes = ["--sigmas", "0.3", "--members", "12", "--answers", "30"]
    wild, calm = (measured(coevo, *chaotic, *sizes, "--set", f"chaotic.spread={s}") for s in (1.0, 0.1))
    assert wild["proposal"]["answers"] > calm["proposal"]["answers"]
    assert wild["sigmas"][0]["within"] > calm["sigmas"][0]["within"]


def test_what_is_rounded_away_is_not_proposed(coevo, small, chaotic):
    options = [*chaotic, "--engine", "rounded", "--members", "4", "--answers", "6"]
    found = measured(coevo, *options, "--sigmas", "1e-4,1e-2")
    assert [line["obstacle"] for line in found["sigmas"]] == ["rounded away", ""]
    assert found["proposal"]["sigma"] == 1e-2
    assert measured(coevo, *options, "--sigmas", "1e-4", "--set", "es.min_moved=0")["proposal"]["sigma"] == 1e-4


@pytest.mark.parametrize(("text", "valid"), [("0.25", "100 %"), ("99", "0 %")])
def test_equal_answers_are_no_difference(coevo, chaotic, text, valid):
    silent = [*chaotic, "--engine", "silent", "--set", f"silent.text='{text}'", "--sigmas", "0.1", "--answers", "4"]
    found = measured(coevo, *silent)
    (line,) = found["sigmas"]
    assert (line["moved"], line["f"], line["between"], line["obstacle"]) == (None, None, 0.0, "all equal")
    assert f"({valid} valid): there is no difference to learn from" in found["verdict"]
    assert found["proposal"] is None
    row = next(row for row in coevo("tune", *silent)[1].splitlines() if row.startswith("0.1 "))
    assert row.split()[1:3] == ["-", valid.split()[0]]


def test_the_lines_to_paste_are_those_of_the_proposal_and_are_accepted(coevo, small):
    code, out, _ = coevo("tune", *small, *SIGMAS, "--population", "64")
    assert code == 0
    proposal = measured(coevo, *small, *SIGMAS, "--population", "64")["proposal"]
    wanted = {k: proposal[k] for k in ("sigma", "alpha", "answers", "common_random_numbers")}
    assert wanted["common_random_numbers"] is True
    assert proposal["alpha"] == 4 * proposal["sigma"]
    _, line, toml = re.split(r"^(--set .*)$", out, flags=re.MULTILINE)
    assert tomllib.loads(toml) == {"population": 64, "es": wanted}
    words = line.split()
    assert {tuple(key): value for key, value in map(parse_assignment, words[1:-2:2])} == {
        ("es", key): value for key, value in wanted.items()
    }
    assert words[-2:] == ["--population", "64"]
    assert coevo("run", *small, *words, "--generations", "1", "--quiet")[0] == 0
    Path("c.toml").write_text(toml)
    assert coevo("tune", "c.toml", *small, *SIGMAS)[0] == 0


def test_who_wants_no_common_random_numbers_gets_none(coevo, small):
    without = measured(coevo, *small, *SIGMAS, "--set", "es.common_random_numbers=false")
    assert without["proposal"]["common_random_numbers"] is False
    out = coevo("tune", *small, *SIGMAS, "--set", "es.common_random_numbers=false")[1]
    assert "common_random_numbers" not in out


def test_the_text_says_what_was_measured(coevo, small):
    out, said = coevo("tune", *small, *SIGMAS)[1:]
    lines = out.splitlines()
    assert lines[0] == "what    task one, updater es, seed 0"
    assert re.fullmatch(r"model   smollm2-135m on numbers; the base model, weights [0-9a-f]{16}", lines[1])
    assert lines[2] == "asked   6 members x 6 answers, the same for all members and sigmas"
    assert re.fullmatch(r"centre  24 answers, 100 % valid, mean credit 0\.\d{3}", lines[3])
    assert lines[6].split() == [
        "sigma", "moved", "valid", "credit", "change", "within", "between", "F", "interval", "reliability", "gain",
        "equal", "note",
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[7:9]] == ["0.05", "0.2"]
    assert said.splitlines()[0] == "coevo: tune: centre: 24 answers, 100 % valid, 0:00"
    assert re.fullmatch(r"coevo: tune: sigma 0.05 \(1 of 2\): 100 % valid, F [\d.e+]+, 0:0\d, about 0:0\d left",
                        said.splitlines()[1])  # fmt: skip
    assert len(said.splitlines()) == 3


def test_the_default_sigmas_are_around_the_configuration(coevo, small):
    Path("c.toml").write_text("[es]\nsigma = 0.08\n")
    found = measured(coevo, "c.toml", *small, "--members", "3", "--answers", "3")
    assert [line["sigma"] for line in found["sigmas"]] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64]


def test_a_configuration_that_is_rounded_away_is_tuned_from_the_first_sigma_that_is_not(coevo, small):
    rounded = [*small, "--engine", "rounded", "--set", "es.sigma=1e-7", "--members", "3", "--answers", "3"]
    sigmas = [line["sigma"] for line in measured(coevo, *rounded)["sigmas"]]
    assert 1e-3 < sigmas[0] <= 2e-3
    assert [sigma / sigmas[0] for sigma in sigmas] == [1, 2, 4, 8, 16, 32]


@pytest.mark.parametrize("sigma", ["1e-46", "1e-30"])
def test_sizes_that_no_number_holds_are_tuned_too(coevo, small, sigma):
    found = measured(coevo, *small, "--set", f"es.sigma={sigma}", "--members", "2", "--answers", "2")
    assert found["sigmas"][0]["sigma"] > 1e-10


def test_a_context_updater_that_refuses_the_task_is_no_obstacle(coevo, small):
    own = [word.replace("context=fixed", "context=eoh") for word in small]
    assert measured(coevo, *own, "--members", "2", "--answers", "2", "--set", "eoh.population=3")["members"] == 2


def test_several_examples_share_the_answers(coevo, small):
    code, out, _ = coevo("tune", *small, "--task", "aim", "--sigmas", "0.1", "--members", "3", "--answers", "7")
    assert code == 0
    assert "asked   3 members x 6 answers (to 3 examples), the same for all members and sigmas" in out.splitlines()


# Runs


@pytest.fixture
def trained(coevo, small):
    options = ["--set", "es.sigma=0.3", "--set", "es.alpha=0.02", "--population", "6", "--generations", "3"]
    assert coevo("run", *small, *options, "--name", "a", "--quiet")[0] == 0
    return json.loads(coevo("show", "a", "--json")[1])


def everything():
    return {str(p): p.read_bytes() for p in sorted(Path("runs").rglob("*")) if p.is_file()}


def test_a_run_is_measured_with_the_weights_at_its_end(coevo, trained):
    before = everything()
    found = measured(coevo, "a", *SIGMAS)
    assert everything() == before
    assert found["weights_digest"] == trained["weights_digest"] != trained["base_digest"]
    assert (found["run"], found["task"], found["engine"]) == ("a", "one", "numbers")
    assert measured(coevo, "runs/a", *SIGMAS)["sigmas"][0]["credit"] == found["sigmas"][0]["credit"]
    assert "; the end of run a, weights " in coevo("tune", "a", *SIGMAS)[1]
    os.rename("runs", "elsewhere")
    assert coevo("tune", "a", *SIGMAS)[0] == 2
    # What is in another place may be another's.
    assert "may be a stranger's" in coevo("tune", "a", *SIGMAS, "--runs", "elsewhere")[2]
    assert coevo("tune", "a", *SIGMAS, "--runs", "elsewhere", "--trust")[0] == 0


def test_the_sizes_of_a_run_are_its_own_and_may_be_overridden(coevo, trained):
    assert measured(coevo, "a", "--members", "2", "--answers", "2")["sigmas"][2]["sigma"] == 0.3
    assert measured(coevo, "a", *SIGMAS)["proposal"]["population"] == 6
    assert measured(coevo, "a", *SIGMAS, "--population", "4")["proposal"]["population"] == 4


def test_a_run_without_es_is_tuned_for_it(coevo, small):
    assert coevo("run", *small, "--param", "none", "--generations", "1", "--name", "n", "--quiet")[0] == 0
    found = measured(coevo, "n", *SIGMAS)
    assert (found["updater"], found["proposal"]["population"]) == ("es", 16)


def test_a_run_whose_weights_do_not_come_out_fails_the_check(coevo, trained):
    journal = Path("runs/a/journal.jsonl")
    kept = journal.read_text()
    journal.write_text(kept.replace('"coefficient', "x", 1).replace("0.3", "0.4", 1))
    code, out, said = coevo("tune", "a", *SIGMAS)
    assert (code, out) == (1, "")
    assert said.startswith("coevo: ")
    assert said.count("\n") == 1


# Mistakes


MISTAKES = {
    "--sigmas a": "--sigmas got 'a': expected numbers with commas between, such as 1e-3,2e-3",
    "--sigmas 1e-3,,2e-3": "--sigmas got '1e-3,,2e-3': expected numbers with commas between",
    "--sigmas=": "--sigmas is empty; write it as --sigmas 1e-3,2e-3",
    "--sigmas=,": "--sigmas is empty",
    "--sigmas -1e-3": "--sigmas got -0.001: each should be a number above 0",
    "--sigmas 1e-3,0": "--sigmas got 0: each should be a number above 0",
    "--sigmas nan": "--sigmas got nan: each should be a number above 0",
    "--sigmas 1e-3,inf": "--sigmas got inf: each should be a number above 0",
    "--sigmas 1e-60": "--sigmas got 1e-60: 32-bit numbers do not reach there",
    "--sigmas 1e39": "--sigmas got 1e+39: 32-bit numbers do not reach there",
    "--sigmas 1e-3,0.001": "--sigmas has 0.001 twice",
    "--members 1": "--members got 1: it should be 2 or more, because one member differs from nothing",
    "--members -3": "--members got -3",
    "--answers 1": "--answers got 1: it should be 2 or more",
    "--answers many": "invalid value for '--answers'",
    "--members 100000 --answers 100": "make more than 1,000,000 rollouts a sigma",
    "--set es.sigma=0": "es.sigma is 0, which is no size to start from; give --sigmas 1e-3,2e-3",
    "--set es.sigm=1": "parameter updater 'es' has no option 'sigm'; did you mean 'sigma'?",
    "--task nowhere": "no task named 'nowhere'",
    "--sigma 1e-3": "no such option '--sigma'; did you mean '--sigmas'?",
    "nowhere.toml": "no configuration file 'nowhere.toml'; see the folder configs/ for examples",
    "nowhere": "no run named 'nowhere' in 'runs'",
    "EMPTY": "'EMPTY' is no run: a run is a folder with a config.toml and a journal.jsonl, or its name",
    "--population 1": "population must be at least 2, got 1",
    "--seed -1": "seed got -1",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(coevo, small, line, monkeypatch):
    Path("EMPTY").mkdir()
    arguments = [*(small if "--task" not in line else small[:2]), *line.split()]
    if line != "--population 1":  # the updater itself refuses that
        monkeypatch.setattr(conduct, "parts", _started)
    code, out, said = coevo("tune", *arguments)
    assert (code, out) == (2, ""), said
    assert said.startswith("coevo: ")
    assert said.count("\n") == 1
    assert MISTAKES[line] in said
    assert os.listdir() == ["EMPTY"]


def _started(*_):
    raise AssertionError("something was started")


def test_an_engine_with_fixed_weights_is_refused(coevo, small):
    code, out, said = coevo("tune", *small, "--set", "numbers.adapts=false")
    assert (code, out) == (2, "")
    assert said == (
        "coevo: engine 'numbers' cannot be tuned, because its weights are fixed; "
        "use an engine that adapts, such as 'transformers'\n"
    )


def test_the_model_of_a_run_is_its_own(coevo, trained):
    assert "--model got 'other': the weights of run 'a' are those of its own model" in coevo(
        "tune", "a", "--model", "other"
    )[2]  # fmt: skip


def test_an_engine_that_never_answers_is_a_failure(coevo, chaotic):
    code, out, said = coevo("tune", *chaotic, "--engine", "failing", *SIGMAS)
    assert (code, out) == (1, "")
    assert said.splitlines()[-1] == (
        "coevo: too many answers failed with 'engine_error': RuntimeError: the engine hiccuped"
    )


def test_ctrl_c_ends_without_a_traceback_and_without_a_trace(small, tmp_path):
    run = subprocess.Popen(
        [*COEVO, "tune", *small, "--set", "numbers.delay=0.2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    first = run.stderr.readline()
    assert first.startswith("coevo: tune: centre: ")
    run.send_signal(signal.SIGINT)
    out, said = run.communicate(timeout=180)
    assert (run.returncode, out) == (130, "")
    assert said.splitlines()[-1] == "coevo: interrupted"
    assert "Traceback" not in said
    assert os.listdir(tmp_path) == []


def test_the_defaults_of_the_command_are_those_of_the_function():
    parameters = inspect.signature(conduct.tune).parameters
    assert parameters["members"].default == command.MEMBERS
    assert parameters["answers"].default == command.ANSWERS
