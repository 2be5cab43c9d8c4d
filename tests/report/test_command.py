"""`coevo report`: where it writes, what it says, and what it does not load until it is asked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coevo.report import run_report


def test_the_command_writes_beside_the_run_and_says_where(rich, coevo):
    code, out, err = coevo("report", rich.path)
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"wrote {rich.path / name}" for name in ("report.html", "curves.svg", "curves.png")]


def test_a_run_is_found_by_its_name(rich, coevo, tmp_path):
    code, out, _ = coevo("report", "rich", "--runs", rich.path.parent, "--out", tmp_path / "x.html", "--json")
    assert code == 0
    assert json.loads(out) == {
        "report": str(tmp_path / "x.html"),
        "svg": str(tmp_path / "x-curves.svg"),
        "png": str(tmp_path / "x-curves.png"),
    }


def test_a_mistake_is_one_line(rich, coevo, tmp_path):
    for arguments in (["rihc", "--runs", rich.path.parent], [rich.path, "--out", tmp_path]):
        code, out, err = coevo("report", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("coevo: ")
        assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["journal.jsonl", "config.toml", "a.svg", ".", "", "nothing"])
def test_only_an_html_file_is_written(rich, coevo, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("journal.jsonl").write_text("precious")
    code, _, err = coevo("report", rich.path, "--out", name)
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("coevo: --out got ")
    assert Path("journal.jsonl").read_text() == "precious"


def test_what_is_no_ordinary_file_is_left_alone(rich, coevo, tmp_path):
    os.mkfifo(tmp_path / "pipe.html")
    os.mkfifo(tmp_path / "b-curves.png")
    for name in ("pipe.html", "b.html"):
        assert "is no ordinary file; choose another name" in coevo("report", rich.path, "--out", tmp_path / name)[2]


def test_a_folder_that_cannot_be_written_is_one_line(rich, coevo, monkeypatch):
    def refuse(path, text):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run_report, "write_atomic", refuse)
    code, _, err = coevo("report", rich.path)
    assert code == 2
    assert "Permission denied; choose another place with --out" in err


@pytest.mark.parametrize("command", ["--help", "report --help", "show none"])
def test_other_commands_load_neither_matplotlib_nor_jinja(command, tmp_path):
    program = (
        "import sys\nfrom coevo.cli import main\ncode = main(sys.argv[1:])\n"
        "print([n for n in ('matplotlib', 'jinja2') if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command.split()], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stderr.splitlines()[-1] == "[]"
