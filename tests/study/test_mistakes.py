"""Every mistake in a study's file is one line, exit code 2, and nothing is started or written."""

import re
from pathlib import Path

import pytest
from study_kit import FAKES

from coevo.tools.study.plan import merged, read_study

BASE = f'[base]\nplugins = ["{FAKES}"]\ntask = "aim"\nengine = "numbers"\ncontext = "fixed"\ngenerations = 1\n'
SEEDS = "seeds = [0]\n"
ARM = '[arms.a]\nparam = "none"\n'
ES = '[arms.b]\nparam = "es"\n'

MISTAKES = {
    "an unknown key": ("sedes = [0]\n" + BASE + ARM, "unknown key 'sedes' in study 'bad.toml'; did you mean 'seeds'?"),
    "a run's key at the top": (SEEDS + "calls = 3\n" + BASE + ARM, "unknown key 'calls' in study 'bad.toml'; it belongs"
                               " below [base]"),
    "no arms": (SEEDS + BASE, "a study needs arms; write [arms.\"es+sample\"], a table of what differs from [base]"),
    "arms are a list": (SEEDS + BASE + "[[arms]]\nparam = 'none'\n", "arms got [{'param': 'none'}]: input should be a"),
    "an arm is no table": (SEEDS + BASE + "[arms]\na = 3\n", "arms.a got 3: input should be a valid table; write"),
    "base is no table": (SEEDS + "base = 3\n" + ARM, "base got 3: input should be a valid table; write [base]"),
    "no seeds": (BASE + ARM, "a study needs seeds; write seeds = [0, 1, 2] at the top of the file"),
    "seeds are a number": ("seeds = 3\n" + BASE + ARM, "seeds got 3: input should be a valid list; write seeds = ["),
    "seeds are empty": ("seeds = []\n" + BASE + ARM, "seeds got []: list should have at least 1 item"),
    "a seed is text": ("seeds = [0, 'x']\n" + BASE + ARM, "seeds.1 got 'x': input should be a valid integer; write"),
    "a seed is true": ("seeds = [true]\n" + BASE + ARM, "seeds.0 got True: input should be a valid integer"),
    "a seed is a fraction": ("seeds = [1.0]\n" + BASE + ARM, "seeds.0 got 1.0: input should be a valid integer"),
    "a seed is negative": ("seeds = [0, -1]\n" + BASE + ARM, "seeds.1 got -1: input should be greater than or equal"),
    "a seed is huge": ("seeds = [9223372036854775808]\n" + BASE + ARM, "seeds.0 got 9223372036854775808: input should"),
    "a seed comes twice": ("seeds = [1, 2, 1]\n" + BASE + ARM, "seeds got 1 twice: runs of equal seeds are equal"),
    "too many seeds": (f"seeds = {list(range(1001))}\n" + BASE + ARM, "seeds got 1,001 seeds: expected at most 1,000"),
    "an arm with a slash": (SEEDS + BASE + '[arms."a/b"]\n', "the name of an arm got 'a/b': expected a name such as"),
    "an arm with a backslash": (SEEDS + BASE + '[arms.\'a\\b\']\n', "the name of an arm got 'a\\\\b': expected"),
    "an arm without a name": (SEEDS + BASE + '[arms.""]\n', "the name of an arm got '': expected a name such as"),
    "an arm of dots": (SEEDS + BASE + '[arms.".."]\n', "the name of an arm got '..': expected a name such as"),
    "an arm like an option": (SEEDS + BASE + "[arms.-es]\n", "the name of an arm got '-es': expected a name such as"),
    "an arm with a line break": (SEEDS + BASE + '[arms."a\\nb"]\n', "the name of an arm got 'a\\nb': expected"),
    "an arm with an endless name": (SEEDS + BASE + f"[arms.{'x' * 201}]\n", "got a name of 201 letters: expected at m"),
    "a study with a slash": ("name = 'a/b'\n" + SEEDS + BASE + ARM, "name got 'a/b': expected a name such as"),
    "a study named by a number": ("name = 3\n" + SEEDS + BASE + ARM, "name got 3: expected a name such as"),
    "an arm twice": (SEEDS + BASE + ARM + ARM, "'bad.toml' is not valid TOML"),
    "no TOML": ("seeds = [", "'bad.toml' is not valid TOML"),
    "an arm with a seed": (SEEDS + BASE + ARM + "seed = 3\n", "arms.a.seed is set by the study itself; write seeds = "),
    "an arm with a name": (SEEDS + BASE + ARM + "name = 'x'\n", "arms.a.name is set by the study itself"),
    "base with runs": (SEEDS + BASE + "runs = 'x'\n" + ARM, "base.runs is set by the study itself; write coevo study"),
    "an arm with plugins": (SEEDS + BASE + ARM + "plugins = []\n", "arms.a.plugins: plugin files are loaded once for"),
    "plugins are text": (SEEDS + "[base]\nplugins = 'x.py'\n" + ARM, "plugins got 'x.py': it should be a list of Pyth"),
    "a plugin file that is not there": (SEEDS + "[base]\nplugins = ['x.py']\n" + ARM, "no plugin file '"),
    "an unknown updater": (SEEDS + BASE + "[arms.a]\nparam = 'ess'\n", "arm 'a': no parameter updater named 'ess'; di"),
    "an unknown task": (SEEDS + BASE + ARM + "task = 'aimm'\n", "arm 'a': no task named 'aimm'; did you mean 'aim'?"),
    "an unknown key of a run": (SEEDS + BASE + "cals = 3\n" + ARM, "arm 'a': unknown configuration key 'cals'; did yo"),
    "an unknown table": (SEEDS + BASE + "[base.ess]\nsigma = 1\n" + ARM, "unknown configuration key 'ess'; did you me"),
    "a wrong type": (SEEDS + BASE + ARM + "calls = 'many'\n", "arm 'a': calls got 'many': input should be a valid int"),
    "an unknown option": (SEEDS + BASE + "[base.es]\nsigm = 1\n" + ES, "arm 'b': parameter updater 'es' has no option"),
    "a wrong option": (SEEDS + BASE + ES + "es.population = 1\n", "arm 'b': parameter updater 'es': population must b"),
    "options of nobody": (SEEDS + BASE + "[base.es]\nsigma = 1\n" + ARM, "base.es: no arm uses 'es'; expected one of:"),
    "options of a similar name": (SEEDS + BASE + "[base.eoh]\n" + ARM + ES, "base.eoh: no arm uses 'eoh'; expected on"),
    "options that the arm itself does not use": (SEEDS + BASE + ARM + "es.sigma = 1\n", "arm 'a': options are given for"
                                                 " 'es', which this run does not use"),
    "a value where a table belongs": (SEEDS + BASE + ES + "es = 3\n", "arm 'b': 'es' got 3: it should be a table"),
    "the second arm only": (SEEDS + BASE + ARM + ES + "es.sigma = -1\n", "arm 'b': parameter updater 'es': option 'si"),
    "a model that is not there": (SEEDS + BASE + ARM + "model = './nowhere'\n", "arm 'a': there is no model folder"),
    "a population without members": (SEEDS + BASE + ARM + "population = 3\n", "arm 'a': parameter updater 'none' has"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(coevo, mistake, monkeypatch):
    def started(*_):
        raise AssertionError("something was started")

    monkeypatch.setattr("coevo.app.launch.parts", started)
    text, expected = MISTAKES[mistake]
    Path("bad.toml").write_text(text)
    code, out, said = coevo("study", "bad.toml")
    assert (code, out) == (2, ""), said
    assert said.startswith("coevo: ")
    assert said.count("\n") == 1
    assert expected in said
    assert not Path("runs").exists()


def test_a_file_that_cannot_be_read_is_one_line(coevo):
    Path("folder").mkdir()
    assert coevo("study", "nowhere.toml")[2] == (
        "coevo: no configuration file 'nowhere.toml'; see the folder configs/ for examples\n"
    )
    assert coevo("study", "folder")[2] == "coevo: cannot read the configuration file 'folder': Is a directory\n"
    assert "missing argument 'FILE'" in coevo("study")[2]


def test_places_where_no_study_can_be_are_one_line(coevo, small):
    Path("file").write_text("")
    code, out, said = coevo("study", small, "--runs", "file")
    assert (code, out, said) == (
        2, "", "coevo: cannot write in the study's folder 'file/small': Not a directory; choose another with --runs\n"
    )  # fmt: skip
    Path("runs/small").mkdir(parents=True)
    Path("runs/small/config.toml").write_text("")
    assert coevo("study", small)[2] == "coevo: 'runs/small' is a run; give the study another name\n"


def test_tables_are_merged_key_by_key_and_values_replaced():
    base = {"a": 1, "t": {"x": 1, "y": {"z": 1}}, "l": [1, 2]}
    own = {"t": {"y": {"w": 2}}, "l": [3], "n": 4}
    assert merged(base, own) == {"a": 1, "t": {"x": 1, "y": {"z": 1, "w": 2}}, "l": [3], "n": 4}
    assert base == {"a": 1, "t": {"x": 1, "y": {"z": 1}}, "l": [1, 2]}
    assert merged({"t": 1}, {"t": {"x": 1}}) == {"t": {"x": 1}}


def test_the_study_of_the_page_is_one():
    page = (Path(__file__).parents[2] / "docs/studies.md").read_text()
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    Path("mine.toml").write_text(text)
    study, _ = read_study(Path("mine.toml"))
    assert [str(run.subject.path) for run in study.runs][:3] == [
        "runs/mine/none+sample-s0", "runs/mine/es+sample-s0", "runs/mine/none+sample-s1"
    ]  # fmt: skip
    assert study.runs[0].config.options == {"sample": {"batch": 128}}
    assert study.runs[1].config.options == {"es": {"population": 16}}
