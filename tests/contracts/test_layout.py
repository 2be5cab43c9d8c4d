"""What the tree promises: a plugin a folder, small modules, configs that parse, generated pages up to date."""

import ast
import fnmatch
import importlib.util
import re
import statistics
import tomllib
from pathlib import Path

import pytest

from coevo.app.blueprint import Blueprint
from coevo.host import discovery
from coevo.host.config import read_file
from coevo.tools.study.conduct import check_parts
from coevo.tools.study.plan import read_study

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = sorted(p for root in ("coevo", "plugins", "tasks") for p in (ROOT / root).rglob("*.py"))
PLUGINS = [p for p in SOURCES if not p.is_relative_to(ROOT / "coevo")]
STUDIES = sorted((ROOT / "configs/studies").glob("**/*.toml"))
CONFIGS = sorted(set((ROOT / "configs").glob("**/*.toml")) - set(STUDIES))


def lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_every_folder_of_plugins_and_tasks_is_an_entry_point():
    folders = {p.name for root in ("plugins", "tasks") for p in (ROOT / root).iterdir() if p.is_dir()}
    folders.discard("__pycache__")
    assert set(PROJECT["entry-points"]["coevo"].values()) == folders
    for name, package in PROJECT["entry-points"]["coevo"].items():
        assert package == f"coevo_{name}"


def test_the_installed_entry_points_are_those_of_the_project():
    installed = {name: point.value for name, (point, d) in discovery.entry_points().items() if d.name == "coevo"}
    assert installed == PROJECT["entry-points"]["coevo"], "install again: pip install -e ."


def test_no_module_is_long():
    assert {str(p.relative_to(ROOT)): lines(p) for p in SOURCES if lines(p) > 400} == {}
    assert lines(ROOT / "coevo/loop/evolve.py") <= 150
    assert statistics.median(lines(p) for p in SOURCES if lines(p) > 0) <= 150


def test_the_door_has_few_rooms():
    assert len([p for p in (ROOT / "coevo").iterdir() if p.name != "__pycache__"]) <= 24


def modules_of_coevo(path):
    """Modules of coevo that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "coevo")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "coevo":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if is_module(inner) else node.module


def is_module(name):
    path = ROOT.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def public_modules():
    """What CONTRIBUTING.md tells plugins to import."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (said,) = re.findall(r"\*\*Plugins import only the public modules\*\*(.*?)\n- ", text + "\n- ", re.DOTALL)
    return re.findall(r"`(coevo[\w.*]*)`", said)


@pytest.mark.parametrize(
    "path",
    [p for p in SOURCES if p.is_relative_to(ROOT / "plugins") or p.is_relative_to(ROOT / "tasks")],
    ids=lambda p: f"{p.parent.name}/{p.name}",
)
def test_a_plugin_imports_only_public_modules(path):
    allowed = public_modules()
    private = {name for name in modules_of_coevo(path) if not any(fnmatch.fnmatch(name, one) for one in allowed)}
    assert private == set(), "list it in CONTRIBUTING.md, or do without"


def test_every_public_module_exists():
    assert [name for name in public_modules() if not is_module(name.removesuffix(".*"))] == []


def test_source_roots_hold_packages_only():
    # Anything else would be installed at the top of site-packages.
    for root in ("plugins", "tasks"):
        assert [p.name for p in (ROOT / root).iterdir() if p.is_file() and p.suffix != ".md"] == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.name)
def test_a_config_parses_and_begins_with_its_command(path):
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith("# coevo run ")
    assert str(path.relative_to(ROOT)) in first
    registries = discovery.load(folder=ROOT / "configs").registries()
    Blueprint.of(read_file(path), registries)


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.name)
def test_a_study_parses_and_begins_with_its_command(path, monkeypatch):
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    assert first == f"# coevo study {path.relative_to(ROOT)}"
    # The model need not be here.
    monkeypatch.setattr("coevo.app.blueprint.Blueprint.check_model", lambda _: None)
    study, plugins = read_study(path)
    for run in study.runs:
        check_parts(run, plugins.registries())
    assert study.frame.name == path.stem


def generator():
    spec = importlib.util.spec_from_file_location("generate_cli", ROOT / "docs/generate_cli.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    return generate


@pytest.mark.parametrize("name", ["cli.md", "index.md", "options.md"])
def test_a_page_that_is_made_is_up_to_date(name):
    pages = generator().PAGES
    assert sorted(pages) == ["cli.md", "index.md", "options.md"]
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == pages[name](), "run: python docs/generate_cli.py"


def test_no_option_of_ours_goes_without_help():
    listed = re.findall(r"^- `[\w.]+` \(.+?\):(.*)$", generator().options_page(), re.MULTILINE)
    assert len(listed) > 100
    assert all(told.strip() for told in listed)
