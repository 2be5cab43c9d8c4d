"""Files of a user are run as they were read, with the modules beside them and without bytecode."""

import importlib.util
import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from coevo.errors import PluginError, UserError
from coevo.host import consent, discovery, source
from coevo.host.source import Source
from coevo.sandbox.problem import import_file

NAMES = ("aside", "aside_too", "aside_package")


@pytest.fixture(autouse=True)
def _unloaded(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    yield
    for name in [n for n in sys.modules if n.partition(".")[0] in (*NAMES, "the_plugin")]:
        del sys.modules[name]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path


def plant(path, text):
    """Bytecode of something else, which Python takes for that of the file without looking."""
    other = write(path.parent / "other" / path.name, text)
    cached = Path(importlib.util.cache_from_source(str(path)))
    cached.parent.mkdir(exist_ok=True)
    py_compile.compile(str(other), str(cached), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    other.unlink()


def test_a_file_imports_modules_and_packages_beside_it(tmp_path):
    write(tmp_path / "aside.py", "from aside_too import x\n")
    write(tmp_path / "aside_too.py", "x = 20\n")
    write(tmp_path / "aside_package/__init__.py", "from .inner import y\n")
    write(tmp_path / "aside_package/inner.py", "y = 22\n")
    text = "import aside\n\ndef later():\n    import aside_package\n    return aside.x + aside_package.y\n"
    read = Source.read(write(tmp_path / "plugin.py", text))
    assert set(read.beside) == {"aside.py", "aside_too.py", "aside_package/__init__.py", "aside_package/inner.py"}
    assert read.run("the_plugin").later() == 42


def test_bytecode_that_somebody_planted_is_not_run(tmp_path):
    write(tmp_path / "aside.py", "x = 'source'\n")
    plant(tmp_path / "aside.py", "x = 'planted'\n")
    plugin = write(tmp_path / "plugin.py", "import aside\nx = 'source'\n")
    plant(plugin, "x = 'planted'\n")
    module = Source.read(plugin).run("the_plugin")
    assert (module.x, module.aside.x) == ("source", "source")
    assert import_file(plugin, "of_a_problem").x == "source"


def test_python_itself_would_run_it(tmp_path):
    write(tmp_path / "aside.py", "x = 'source'\n")
    plant(tmp_path / "aside.py", "x = 'planted'\n")
    said = subprocess.run(
        [sys.executable, "-c", "import aside; print(aside.x)"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout == "planted\n"


def test_what_is_run_is_what_was_read(tmp_path):
    aside = write(tmp_path / "aside.py", "x = 1\n")
    read = Source.read(write(tmp_path / "plugin.py", "import aside\n"))
    aside.write_text("x = 2\n", "utf-8")
    assert read.run("the_plugin").aside.x == 1


def test_a_file_is_known_again_by_what_it_imports_and_nothing_else(tmp_path):
    plugin = write(tmp_path / "plugin.py", "import aside\n")
    aside = write(tmp_path / "aside.py", "x = 1\n")
    before = Source.read(plugin).signature
    write(tmp_path / "unrelated.py", "x = 1\n")
    assert Source.read(plugin).signature == before
    aside.write_text("x = 2\n", "utf-8")
    assert Source.read(plugin).signature != before
    alone = write(tmp_path / "alone.py", "import json\n")
    assert Source.read(alone).signature == alone.read_bytes()


def test_nothing_in_a_folder_takes_the_place_of_a_library(tmp_path):
    for name in ("json", "numpy"):
        write(tmp_path / f"{name}.py", "raise SystemExit('taken')\n")
    read = Source.read(write(tmp_path / "plugin.py", "import json, numpy\nx = numpy.float64(json.loads('2'))\n"))
    assert (dict(read.beside), read.run("the_plugin").x) == ({}, 2.0)


def test_two_modules_of_one_name_are_one_line(tmp_path):
    for folder in ("a", "b"):
        write(tmp_path / folder / "aside.py", "")
        write(tmp_path / folder / "plugin.py", "import aside\n")
    Source.read(tmp_path / "a/plugin.py").run("the_plugin")
    with pytest.raises(UserError, match=r"another 'aside' is loaded already.*rename one$"):
        Source.read(tmp_path / "b/plugin.py").run("the_plugin")


def test_more_files_than_anybody_imports_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "MOST_FILES", 2)
    for number in range(3):
        write(tmp_path / f"aside_package/{number}.py", "")
    with pytest.raises(UserError, match="more than 2 files"):
        Source.read(write(tmp_path / "plugin.py", "import aside_package\n"))


def test_the_module_of_the_command_runs_nothing_of_the_working_folder(tmp_path):
    for name in ("typer", "numpy", "rich"):
        write(tmp_path / f"{name}.py", "raise SystemExit('taken')\n")
    done = subprocess.run(
        [sys.executable, "-m", "coevo", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_was_agreed_to_is_what_is_run(tmp_path, monkeypatch):
    file = write(tmp_path / discovery.LOCAL_PLUGIN, "x = 1\n")
    monkeypatch.setenv("COEVO_TRUST", "1")
    obtain = consent.obtain

    def swapped(*arguments):
        obtain(*arguments)
        file.write_text("raise SystemExit('swapped')\n", "utf-8")

    monkeypatch.setattr(consent, "obtain", swapped)
    with pytest.raises(PluginError, match="has changed since it was agreed to"):
        discovery.load(folder=tmp_path)


@pytest.mark.parametrize("where", ["itself", "beside"])
def test_what_is_no_regular_file_is_not_waited_for(tmp_path, where):
    plugin = tmp_path / "plugin.py"
    if where == "beside":
        write(plugin, "import aside\n")
    os.mkfifo(plugin if where == "itself" else tmp_path / "aside.py")
    with pytest.raises(OSError, match="it is a pipe, and should be a file"):
        Source.read(plugin)
    with pytest.raises(PluginError, match=r"it is a pipe|no plugin file"):
        discovery.load([str(plugin)])
