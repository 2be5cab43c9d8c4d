"""A stranger's distribution is found, listed and used; a broken one is named in a line and harms no one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coevo.cli import main
from coevo.errors import PluginError
from coevo.host.discovery import load

OUTSIDE = Path(__file__).with_name("outside_plugin")
FAKES = Path(__file__).parents[1] / "fakes.py"
COEVO = [sys.executable, "-c", "import sys; from coevo.cli import main; sys.exit(main())"]


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COEVO_PLUGINS", raising=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The outside plugin, installed by pip into a folder of its own, offline."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(OUTSIDE, folder / "source")
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "target")]
    subprocess.run([*pip, str(folder / "source")], check=True, capture_output=True)
    return folder / "target"


def coevo(installed, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([*COEVO, *arguments], capture_output=True, text=True, check=False, env=environment)


def distribution(folder, name, code):
    """A distribution as pip would leave it, without pip."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[coevo]\n{name} = {name}\n")


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for name in [n for n, m in sys.modules.items() if str(getattr(m, "__file__", None)).startswith(str(folder))]:
        del sys.modules[name]  # another test has another module of this name


def test_a_strangers_plugin_is_listed(installed):
    done = coevo(installed, "plugins", "--json")
    records = {record["name"]: record for record in json.loads(done.stdout)}
    assert records["outside"] == {
        "name": "outside",
        "source": "coevo-outside 1.0",
        "error": "",
        "notes": [],
        "registers": {"context": ["encourage"]},
    }
    assert "Try something bolder." in coevo(installed, "options", "context", "encourage").stdout


def test_a_strangers_plugin_evolves(installed):
    small = ["--plugin", str(FAKES), "--task", "aim", "--engine", "numbers", "--set", "es.sigma=0.3"]
    done = coevo(installed, "run", *small, "--context", "encourage", "--generations", "6", "--name", "a")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [json.loads(line) for line in Path("runs/a/journal.jsonl").read_text().splitlines()]
    state = [line for line in lines if line["kind"] == "batch"][-1]["states"]
    assert state["contexts"]["components"]["prompt"].startswith("Try something bolder. ")
    assert json.loads(coevo(installed, "show", "a", "--json").stdout)["updates"] == 6


def test_a_plugin_that_does_not_import_disables_nothing_else(site, capsys):
    distribution(site, "acme", "import not_there\n")
    assert main(["plugins"]) == 0
    said = capsys.readouterr().out
    assert "acme 1.0" in said
    assert "broken: ModuleNotFoundError: No module named 'not_there'" in said
    assert "param es" in said


def test_a_missing_extra_is_one_clear_line(site, capsys):
    code = "import coevo\nraise coevo.MissingExtraError('plugin acme', 'not_there', 'acme')\n"
    distribution(site, "acme", code)
    main(["plugins"])
    assert "broken: MissingExtraError: plugin acme needs the package 'not_there'" in capsys.readouterr().out
    Path("engine.py").write_text(
        "import coevo\n"
        "def acme(model=''):\n"
        "    raise coevo.MissingExtraError('engine acme', 'not_there', 'acme')\n"
        "@coevo.hookimpl\n"
        "def register_engines(engines):\n"
        "    engines.register('acme', acme)\n"
    )
    assert main(["run", "--plugin", "engine.py", "--plugin", str(FAKES), "--task", "aim", "--context", "fixed",
                 "--engine", "acme"]) == 2  # fmt: skip
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == (
        "coevo: engine acme needs the package 'not_there', which is not installed; "
        "mend it with: pip install 'coevo[acme]'"
    )
    # The run says which plugin is left out; its own error is the last line.
    assert lines[:-1] == [
        "coevo: note: plugin 'acme' (acme 1.0) is left out: MissingExtraError: plugin acme needs the package "
        "'not_there', which is not installed; mend it with: pip install 'coevo[acme]'"
    ]


MISSPELT = "import coevo\n@coevo.hookimpl\ndef register_task(tasks):\n    pass\n"


def test_a_misspelt_hook_is_named_with_the_right_one(site, capsys):
    Path("mine.py").write_text(MISSPELT)
    assert main(["plugins", "--plugin", "mine.py"]) == 2
    assert capsys.readouterr().err == (
        "coevo: plugin 'mine' (mine.py): unknown hook 'register_task'; did you mean 'register_tasks'?\n"
    )
    distribution(site, "acme", MISSPELT)
    assert main(["plugins"]) == 0
    assert "broken: plugin 'acme' (acme 1.0): unknown hook 'register_task'" in capsys.readouterr().out


def test_a_misspelt_argument_is_named():
    Path("mine.py").write_text("import coevo\n@coevo.hookimpl\ndef register_tasks(task):\n    pass\n")
    with pytest.raises(PluginError, match=r"plugin 'mine'.*task"):
        load(["mine.py"])


def test_a_name_registered_twice_names_both_plugins(capsys):
    Path("mine.py").write_text(
        "import coevo\n@coevo.hookimpl\ndef register_parameter_updaters(updaters):\n    updaters.register('es', dict)\n"
    )
    assert main(["plugins", "--plugin", "mine.py"]) == 2
    said = capsys.readouterr()
    assert said.err == (
        "coevo: parameter updater 'es' is registered twice: by plugin 'es' and by plugin 'mine'; "
        "rename one or leave one out with COEVO_PLUGINS\n"
    )
    assert "mine.py" in said.out


def test_two_distributions_with_one_plugin_name_are_named(site, capsys):
    distribution(site, "acme", "")
    distribution(site, "other", "")
    (site / "other-1.0.dist-info/entry_points.txt").write_text("[coevo]\nacme = other\n")
    assert main(["plugins"]) == 2
    said = capsys.readouterr().err
    assert "plugin name 'acme' is used by two distributions" in said
    assert said.count("\n") == 1


def test_a_plugin_adds_a_command_and_one_that_exists_is_refused(capsys):
    command = (
        "import coevo\n"
        "@coevo.hookimpl\n"
        "def register_commands(app):\n"
        "    @app.command()\n"
        "    def {}():\n"
        "        print('hello')\n"
    )
    Path("coevo_plugin.py").write_text(command.format("greet"))
    assert main(["greet", "--trust"]) == 0
    assert capsys.readouterr().out == "hello\n"
    Path("coevo_plugin.py").write_text(command.format("show"))
    assert main(["greet", "--trust"]) == 2
    assert "command 'show' is registered twice: by 'coevo.cli.reading' and by 'coevo_" in capsys.readouterr().err


def test_the_environment_limits_what_is_loaded(monkeypatch, capsys):
    monkeypatch.setenv("COEVO_PLUGINS", "es, none")
    assert main(["plugins", "--json"]) == 0
    assert [record["name"] for record in json.loads(capsys.readouterr().out)] == ["es", "none"]
    monkeypatch.setenv("COEVO_PLUGINS", "ess")
    assert main(["plugins"]) == 2
    assert capsys.readouterr().err == ("coevo: COEVO_PLUGINS names 'ess', which is not installed; did you mean 'es'?\n")
