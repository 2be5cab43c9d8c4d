"""Every text file that a user writes is read by `coevo.files`, so that all of them are read alike."""

import re
from pathlib import Path

import pytest

from coevo.cli import main
from coevo.host import discovery

ROOT = Path(__file__).parents[2]
READS = re.compile(r"\.read_text\(|\.read_bytes\(|(?<![.\w])open\(|\.open\(|json\.load\(|tomllib\.load\(")
OWN_TREE = "a resource that comes with coevo"
WROTE = "a file that coevo wrote itself"
SYSTEM = "a file of the operating system"
BINARY = "no text, or bytes for a digest"
ALLOWED = {
    "coevo/files.py": "the one place",
    "coevo/cli/streams.py": SYSTEM,
    "coevo/tools/doctor/child.py": WROTE,
    "coevo/host/hashes.py": BINARY,
    "coevo/machine/resources.py": SYSTEM,
    "coevo/models/catalogue.py": BINARY,
    "coevo/report/html.py": OWN_TREE,
    "coevo/sandbox/candidate.py": SYSTEM,
    "coevo/sandbox/examining.py": SYSTEM,
    "coevo/sandbox/namespaces.py": SYSTEM,
    "coevo/sandbox/processes.py": SYSTEM,
    "coevo/sandbox/zygote.py": SYSTEM,
    "coevo/tools/scaffold/writing.py": OWN_TREE,
    "coevo/tools/serve/vllm_server.py": WROTE,
    "coevo/tools/sizing/architecture.py": OWN_TREE,
    "coevo/tools/study/output.py": WROTE,
    "coevo/weights/master.py": BINARY,
    "coevo/weights/memory.py": BINARY,
    "coevo/weights/noise.py": OWN_TREE,
    "coevo/weights/stored.py": BINARY,
    "plugins/coevo_ray/watcher.py": SYSTEM,
    "plugins/coevo_transformers/loading.py": SYSTEM,
    "plugins/coevo_vllm/canarying.py": WROTE,
    "tasks/coevo_heuristics/identity.py": BINARY,
}
"""Modules that open files themselves, and what those are: none that a user writes as text."""

PROBLEM = """
title = "A problem"
entry = "answer"
direction = "minimize"
"""


def test_only_these_modules_open_files_themselves():
    sources = (p for root in ("coevo", "plugins", "tasks") for p in (ROOT / root).rglob("*.py"))
    problems = ROOT / "tasks/coevo_heuristics/problems"  # what users write; they read what lies beside them
    found = {
        str(path.relative_to(ROOT))
        for path in sources
        if problems not in path.parents and READS.search(path.read_text(encoding="utf-8"))
    }
    assert found - ALLOWED.keys() == set(), "read what a user writes with coevo.files.read_text, or say why not here"
    assert ALLOWED.keys() - found == set(), "these open nothing any more"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


PLUGIN = "import coevo\n\n@coevo.hookimpl\ndef register_tasks(tasks):\n    pass\n"


def test_a_configuration_and_a_plugin_file_may_begin_with_a_mark(here, capsys):
    Path("run.toml").write_text("seed = -1\n", encoding="utf-8-sig")
    assert main(["run", "run.toml"]) == 2
    assert "seed got -1" in capsys.readouterr().err
    Path("mine.py").write_text(PLUGIN, encoding="utf-8-sig")
    discovery.load([str(here / "mine.py")])


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
@pytest.mark.parametrize(
    ("file", "text", "command"),
    [
        ("run.toml", "# é\nseed = 1\n", "run run.toml"),
        ("study.toml", "# é\nseeds = [1]\n", "study study.toml"),
        ("mine.py", "# é\n" + PLUGIN, "plugins --plugin mine.py"),
        ("problem.toml", "# é\n" + PROBLEM, "run --task ."),
    ],
)
def test_files_in_another_encoding_are_refused_in_one_line(here, capsys, file, text, command, encoding):
    Path(file).write_text(text, encoding=encoding)
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{file}' is not UTF-8: " in said
    assert ("UTF-16" if encoding == "utf-16" else "'é' in Latin-1") in said
