"""Whatever a plugin, a model or a file's name brings, no command lets it act on the terminal."""

import io
import json
import os
import pty
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from coevo.text import printing_safely
from coevo_progress.logger import Progress
from coevo_progress.state import State
from coevo_progress.view import View
from tests.cli.test_progress import INFO, report, rollout

HOSTILE = "\x1b[2J\x1b]0;mine\x07\x00\x9b31m\u202e\u2066"
SHOWN = "\\x1b[2J\\x1b]0;mine\\x07\\x00\\x9b31m\\u202e\\u2066"
COEVO = [sys.executable, "-c", "import sys; from coevo.cli import main; sys.exit(main())"]

PLUGIN = f'''
"""A stranger's, who names and says what it likes. {HOSTILE!r}"""
import sys
from dataclasses import replace

import coevo
from fakes import AimTask, NumberEngine

HOSTILE = {HOSTILE!r}


class Wild(AimTask):
    def brief(self):
        known = (coevo.Reference(HOSTILE, "train", 1.0), coevo.Reference(HOSTILE + "b", "train", 2.0, baseline=True))
        return replace(super().brief(), title=HOSTILE, description=HOSTILE, references=known)


class Engine(NumberEngine):
    def describe(self):
        print(HOSTILE)
        return {{"device": HOSTILE}}


@coevo.hookimpl
def register_tasks(tasks):
    tasks.register("wild", Wild)


@coevo.hookimpl
def register_engines(engines):
    engines.register("loud", Engine)


@coevo.hookimpl
def batch_finished(report):
    raise RuntimeError(HOSTILE)


@coevo.hookimpl
def register_commands(app):
    @app.command()
    def shout(fail: bool = False):
        """Say it."""
        if fail:
            raise RuntimeError(HOSTILE)
        print(HOSTILE)
'''


@pytest.fixture
def wild(small):
    """Arguments of a run with the stranger's parts."""
    folder = Path(f"a{HOSTILE.replace(chr(0), '')}b")
    folder.mkdir()
    plugin = folder / "wild.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    changed = [{"aim": "wild", "numbers": "loud"}.get(argument, argument) for argument in small]
    return ["--plugin", str(plugin), *changed, "--generations", "1"]


def assert_calm(text):
    assert [letter for letter in text if not (letter.isprintable() or letter in "\n\t")] == []


def test_a_run_and_all_that_is_shown_of_it_are_calm(coevo, wild):
    code, out, said = coevo("run", *wild, "--name", "a")
    assert code == 0, said
    assert_calm(out + said)
    assert SHOWN in out
    assert f"RuntimeError: {SHOWN}" in said
    for line in (
        ["show", "a"],
        ["compare", "a"],
        ["show", "a", "--json"],
        ["tasks", *wild[:2]],
        ["plugins", *wild[:2]],
    ):
        code, out, said = coevo(*line)
        assert code == 0, (line, said)
        assert_calm(out + said)
        if "--json" in line:
            assert out.isascii()
            json.loads(out)


@pytest.mark.parametrize("line", [
    "show {}", "run {}", "run --task {}", "run --plugin {}.py", "plugins --plugin {}.py", "run --set {}=1", "--{}",
    "model pull {}", "{}",
])  # fmt: skip
def test_a_mistake_repeats_nothing_that_acts(coevo, line):
    bad = HOSTILE.replace("\x00", "")
    code, out, said = coevo(*(word.format(bad) for word in line.split()))
    assert (code, said.count("\n")) == (2, 1)
    assert_calm(out + said)


def test_the_live_view_and_its_lines_are_calm():
    state = State(replace(INFO, reference=(HOSTILE, 5.0), baseline=(HOSTILE, 7.0)))
    state.rollouts(0, [rollout(6.5)])
    state.batch(replace(report(zero=HOSTILE), operator=HOSTILE))
    state.tally.operator = HOSTILE
    console = Console(file=io.StringIO(), width=300)
    console.print(View(state, console).render())
    assert_calm(console.file.getvalue())
    assert f"did not move: {SHOWN}" in console.file.getvalue()
    progress = Progress(console=Console(file=io.StringIO(), width=300))
    progress.run_started(replace(INFO, name=HOSTILE))
    progress.batch_finished(report(zero=HOSTILE))
    assert_calm(progress._console.file.getvalue())


def test_what_is_printed_while_the_view_is_drawn_is_calm_and_the_streams_are_given_back(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = io.StringIO()
    before = sys.stdout, sys.stderr
    view = View(State(INFO), Console(file=file, width=100, force_terminal=True))
    view.start()
    print("a \x1b]8;;http://x.example\x1b\\link\x1b]8;;\x1b\\ b")
    print("c \u202e d", file=sys.stderr)
    view.stop()
    assert (sys.stdout, sys.stderr) == before
    assert "a \\x1b]8;;http://x.example\\x1b\\link\\x1b]8;;\\x1b\\ b" in file.getvalue()
    assert "c \\u202e d" in file.getvalue()
    assert "]8;;http" not in file.getvalue().replace("\\x1b]8;;http", "")


def test_the_view_keeps_its_own_colours_and_movements_while_all_that_is_printed_is_calm(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    with printing_safely():
        view = View(State(INFO), Console(width=100))
        view.start()
        print(f"said {HOSTILE}")
        view.stop()
    seen = terminal.getvalue()
    assert f"said {SHOWN}" in seen
    assert "\x1b[?25l" in seen
    assert "\\x1b" not in seen.replace(SHOWN, "")


def test_in_a_real_terminal_a_plugins_command_and_even_its_traceback_are_calm(wild, tmp_path):
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": str(Path(__file__).parents[1])}
    Path("coevo_plugin.py").write_text(Path(wild[1]).read_text(encoding="utf-8"), encoding="utf-8")
    for arguments, word in ((["shout"], b""), (["shout", "--fail"], b"RuntimeError: ")):
        ours, theirs = pty.openpty()
        done = subprocess.Popen([*COEVO, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        seen = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # how Linux says that the other side is closed
                break
            if not part:
                break
            seen += part
        os.close(ours)
        assert done.wait() == bool(word), seen
        assert word + SHOWN.encode() in seen
        assert b"\x1b" not in seen
        assert b"\xc2\x9b" not in seen
