"""Runs that an earlier version made, before its modules moved: they are read, rebuilt, exported and gone on with alike.

`golden/before_rooms` holds a run of a tiny Llama that has ended, one that was killed in its second generation, and the
journal of the same run unbroken. `@HERE@` stands for the folder that they were made in.
"""

import json
import shutil
from pathlib import Path

import pytest

from coevo.cli import main

GOLDEN = Path(__file__).parents[1] / "golden" / "before_rooms"


@pytest.fixture
def place(tmp_path, monkeypatch):
    folder = tmp_path / "place"
    shutil.copytree(GOLDEN, folder)
    for path in (p for run in (folder / "saved").iterdir() for p in (run / "config.toml", run / "run.json")):
        path.write_text(path.read_text("utf-8").replace("@HERE@", str(folder)), "utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COEVO_TRUST", "1")
    return folder


def journal(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def digests(path):
    return [line["digest"] for line in journal(path) if line.get("digest")]


def test_its_weights_are_replayed_with_the_digests_of_then(place, capsys):
    assert main(["replay", "saved/letters", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights_digest"] == digests(place / "saved/letters/journal.jsonl")[-1]


def test_its_weights_are_exported(place, capsys):
    assert main(["export", "saved/letters", "--out", "exported"]) == 0
    note = json.loads((place / "exported/coevo-export.json").read_text("utf-8"))
    assert note["weights_digest"] == digests(place / "saved/letters/journal.jsonl")[-1]
    assert (place / "exported/model.safetensors").stat().st_size > 10_000


def test_it_is_shown_and_reported(place, capsys):
    assert main(["show", "saved/letters", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "finished"
    assert main(["report", "saved/letters"]) == 0
    assert "letters" in (place / "saved/letters/report.html").read_text("utf-8")


def test_a_run_that_was_killed_then_goes_on_to_the_digests_of_one_that_was_not(place, capsys):
    # Plugins have other files now, and what they compute is the same.
    assert main(["resume", "saved/cut", "--quiet", "--accept-changes"]) == 0, capsys.readouterr().err
    assert digests(place / "saved/cut/journal.jsonl") == digests(place / "whole.jsonl")


HUGE = ([2**40], [2**62], [3, 0, 2**62], [-1], "x" * 100_000, "a\0b", 2**80, 1e308, None, {}, True)


def leaves(value, path=()):
    """Where something is in run.json that is no table, and the lists themselves."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
        return
    yield path
    if isinstance(value, list):
        for number, inner in enumerate(value[:1]):
            yield from leaves(inner, (*path, number))


@pytest.mark.parametrize("value", HUGE, ids=lambda v: repr(v)[:12])
def test_whatever_a_strangers_run_says_of_its_weights_is_one_line(place, capsys, value):
    file = place / "saved/letters/run.json"
    good = file.read_text("utf-8")
    for path in leaves(json.loads(good)["engine"]):
        info = json.loads(good)
        inner = info["engine"]
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = value
        file.write_text(json.dumps(info), "utf-8")
        for command in (["replay", "saved/letters"], ["export", "saved/letters", "--out", "out"]):
            shutil.rmtree("out", ignore_errors=True)
            code, said = main(command), capsys.readouterr().err
            assert code in (0, 1, 2), path
            assert code == 0 or (said.count("\n") == 1 and len(said) < 1000), (path, said[:300])
