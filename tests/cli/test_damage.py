"""A run's folder that was cut, edited or mixed up: every command that reads it says so in one line."""

import json
import os
import socket
from pathlib import Path

import pytest

from coevo.runs.journal import Journal, check_of

READERS = ("show a", "show a --json", "report a", "compare a", "resume a --quiet", "serve a")
DEEP = "[" * 100_000
CONFIGS = {
    "": "key 'task' is missing",
    "[es]\nsigma = 1": "key 'task' is missing",
    "nothing = 3": "unknown configuration key 'nothing'",
    f"a = {DEEP}": "nested too deeply",
    "generations = ": "not valid TOML",
}
INFOS = ("", "[]", "null", DEEP, '{"task": []}', '{"task": {"reference": 3}}', '{"task": {"baseline": ["a", "b"]}}',
         '{"versions": 1}', '{"engine": []}', '{"describe": {"weights": {}}}', '{"inputs": {}}', '{"inputs": null}',
         '{"accepted": [1]}')  # fmt: skip


@pytest.fixture
def a(coevo, small):
    code, _, said = coevo("run", *small[:-2], "--param", "none", "--generations", "1", "--name", "a", "--quiet")
    assert (code, said) == (0, "")
    return Path("runs/a")


def _told(coevo, line, file):
    code, out, said = coevo(*line.split())
    assert (code, out if "compare" not in line else "") == (1, ""), (line, said)
    assert said.count("\n") == 1, said
    assert said.startswith("coevo: ")
    if "compare" not in line:
        assert file in said
        assert "damaged" in said
    return said


@pytest.mark.parametrize("text", CONFIGS)
def test_a_configuration_that_no_run_wrote_is_one_line_of_every_command(coevo, a, text):
    (a / "config.toml").write_text(text)
    for line in READERS:
        assert CONFIGS[text] in _told(coevo, line, "config.toml")


@pytest.mark.parametrize(
    ("key", "said"),
    [('generations = "x"', "'generations' got 'x'"), ("param = 3", "'param' got 3"), ("seed = -1", "'seed' got -1")],
)
def test_a_value_of_another_type_in_the_configuration_is_named(coevo, a, key, said):
    file, name = a / "config.toml", key.partition(" ")[0]
    kept = [line for line in file.read_text().splitlines() if not line.startswith(f"{name} =")]
    file.write_text("\n".join([key, *kept]))
    assert said in _told(coevo, "show a", "config.toml")


@pytest.mark.parametrize("text", INFOS)
def test_a_run_json_of_another_form_is_one_line_of_every_command(coevo, a, text):
    (a / "run.json").write_text(text)
    for line in ("show a", "show a --json", "report a", "compare a"):
        _told(coevo, line, "run.json")


@pytest.mark.parametrize("part", ["run.json", "journal.jsonl", "best/best.json", "asked.jsonl", "best/number.txt"])
def test_what_is_no_file_in_a_run_hangs_no_command(coevo, a, part):
    path = a / part
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    for line in ("show a", "report a", "compare a"):
        code, _, said = coevo(*line.split())
        assert code == (0 if part.startswith("best/") else 1), (line, said)
        assert said.count("\n") == int(code)


def test_a_configuration_that_is_no_file_is_one_line(coevo):
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name, kind in (("pipe", "pipe"), ("socket", "socket"), ("/dev/zero", "device")):
            said = f"coevo: cannot read the configuration file {name!r}: it is a {kind}, and should be a file\n"
            assert coevo("run", name) == (2, "", said)


def test_a_line_of_the_journal_without_a_kind_is_told_as_one(coevo, a):
    journal = a / "journal.jsonl"
    whole = journal.read_text()
    last = list(Journal(journal).lines())[-2]["check"]
    for line, said in (
        ({}, "a line (line"),
        ({"previous": last}, "says nothing of its kind"),
        ({"kind": "batch", "previous": last}, "key 'generation': field required"),
    ):
        written = {**line, "check": check_of(line)} if line else {}
        journal.write_text(whole + json.dumps(written) + "\n")
        code, out, told = coevo("show", "a")
        assert (code, out, told.count("\n")) == (1, "", 1)
        assert said in told
        assert "None" not in told


def test_a_run_that_cannot_be_read_is_not_said_to_be_absent(coevo):
    Path("runs").mkdir()
    os.symlink("a", "runs/a")
    assert coevo("show", "a")[2] == "coevo: run 'runs/a' cannot be read: Too many levels of symbolic links\n"


def test_a_folder_of_runs_that_is_none_is_named(coevo):
    Path("FILE").write_text("")
    said = "coevo: --runs got 'FILE', which cannot be read: Not a directory; expected the folder of the runs\n"
    assert coevo("show", "a", "--runs", "FILE") == (2, "", said)
