"""What messages advise exists: options as `plugin.option`, flags and commands, in every text of the source."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest
import typer

from coevo.cli import build_app
from coevo.host import discovery
from coevo.host.config import FIELDS, TABLES
from coevo_heuristics.problem import HoleTable

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("coevo", "plugins", "tasks") for path in sorted((ROOT / folder).rglob("*.py"))]
HOLE = "\N{WHITE SQUARE}"
"""Stands for a value in a text that is put together."""
FIELDS_OF_REQUESTS = ROOT / "coevo" / "endpoint"
"""Names such as `messages[0].role` there are no options."""


def texts(path):
    """Every text in a module, docstrings among them, that is more than a word."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def sentences(path):
    return [text for text in texts(path) if re.search(r"\s", text.strip())]


@pytest.fixture(scope="module")
def plugins():
    return discovery.load()


@pytest.fixture(scope="module")
def options(plugins):
    """Option names by the table that they are in."""
    registries = plugins.registries()
    found = {name: set(table.model_fields) for name, table in TABLES.items()}
    for registry in (getattr(registries, field.name) for field in fields(registries)):
        for name in registry.names:
            found.setdefault(name, set()).update(option.name for option in registry.options(name))
    return found


@pytest.fixture(scope="module")
def command(plugins):
    return typer.main.get_command(build_app(plugins))


def flags_of(command):
    own = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return own.union({"--help"}, *(flags_of(inner) for inner in getattr(command, "commands", {}).values()))


def unknown_options(text, options, *, tables_only=False):
    """What a text names that would be an option and is none."""
    every = set(FIELDS).union({"option"}, HoleTable.model_fields, *options.values())
    for table, name in re.findall(rf"(?<![\w./\]])({HOLE}|[a-z_]+)\.([a-z_]+)\b(?!\()", text):
        if table in options and name not in options[table]:
            yield f"{table}.{name}"
        elif table == HOLE and not tables_only and name not in every:
            yield f"….{name}"
    for name in re.findall(r"--set ([a-z_]+)=", text):
        if name not in FIELDS:
            yield f"--set {name}"


def test_every_option_that_a_text_names_exists(options):
    wrong = [
        f"{path.relative_to(ROOT)}: {name} in {text[:80]!r}"
        for path in SOURCES
        for text in sentences(path)
        for name in unknown_options(text, options, tables_only=path.is_relative_to(FIELDS_OF_REQUESTS))
    ]
    assert wrong == []


def test_every_flag_that_a_text_names_exists(command):
    known = flags_of(command)
    wrong = [
        f"{path.relative_to(ROOT)}: {flag} in {text[:80]!r}"
        for path in SOURCES
        for text in sentences(path)
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
        if flag not in known and "pip install" not in text
    ]
    assert wrong == []


def test_every_command_that_a_text_advises_exists(command):
    wrong = [
        f"{path.relative_to(ROOT)}: coevo {name} in {text[:80]!r}"
        for path in SOURCES
        for text in sentences(path)
        for name in re.findall(r"(?:with|see|further): coevo ([a-z]+)|\(coevo ([a-z]+)", text)
        if "".join(name) not in command.commands
    ]
    assert wrong == []


def test_advice_that_is_wrong_is_found(options):
    assert list(unknown_options("raise openai.context, or lower sampling.max_new_tokens", options)) == [
        "openai.context"
    ]
    assert list(unknown_options(f"raise {HOLE}.contxt", options)) == ["….contxt"]
    assert list(unknown_options("give it with --set rns=DIR", options)) == ["--set rns"]
    assert list(unknown_options("set es.sigma, openai.omit and --set runs=DIR", options)) == []
