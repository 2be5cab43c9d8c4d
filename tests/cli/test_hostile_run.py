"""A stranger's run: reading it changes no file elsewhere, runs nothing, leaves no traceback; to go on with it asks."""

import hashlib
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import checkpoint_engine
import hostile_run as hostile
import pytest

from coevo.host.config import read_file

READING = ("show", "compare", "replay", "export", "report")
QUICK = READING[:4]
BOMB = b"0" * (300 << 20)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """A finished run with weights, a best answer and rollouts, made once."""
    from coevo.cli import main

    place = tmp_path_factory.mktemp("honest")
    base = checkpoint_engine.save_checkpoint(place / "base")
    fakes = Path(__file__).parents[1] / "fakes.py"
    files = ["--plugin", str(fakes), "--plugin", checkpoint_engine.__file__]
    parts = ["--task", "aim", "--engine", "checkpoint", "--context", "fixed", "--model", str(base)]
    sizes = ["--set", "es.sigma=0.3", "--generations", "1", "--population", "4", "--quiet"]
    assert main(["run", *files, *parts, *sizes, "--name", str(place / "strange")]) == 0
    return place / "strange"


@pytest.fixture
def strange(honest):
    return Path(shutil.copytree(honest, Path("strange").absolute()))


@pytest.fixture
def read(coevo, monkeypatch):
    """Read a run by commands, from outside and inside; each ends as a command may."""

    def one(folder, command, inside):
        out = Path("exported").absolute()
        shutil.rmtree(out, ignore_errors=True)
        with monkeypatch.context() as here:
            if inside:
                here.chdir(folder)
            where = "." if inside else folder
            return coevo(command, where, *(["--out", out] if command == "export" else []))

    def every(folder, commands=READING, insides=(False, True)):
        found = []
        for command in commands:
            for inside in insides:
                code, out, said = one(folder, command, inside)
                assert code in (0, 1, 2), (command, said)
                assert said.count("\n") <= 1, (command, said)
                assert "Traceback" not in out + said
                found.append((code, said))
        return found

    return every


@pytest.mark.parametrize("name", hostile.WRITTEN)
def test_no_file_elsewhere_is_written_through_a_link(strange, read, name):
    victim = Path("victim").absolute()
    original = (strange / name).read_bytes() if (strange / name).is_file() else b"mine"
    victim.write_bytes(original)
    before = victim.stat().st_mtime_ns
    (strange / name).unlink(missing_ok=True)
    (strange / name).symlink_to(victim)
    read(strange, READING if name.startswith(("report", "curves")) else QUICK, (False,))
    assert (victim.read_bytes(), victim.stat().st_mtime_ns) == (original, before)


@pytest.mark.parametrize("name", ["config.toml", "run.json", "journal.jsonl", *hostile.FOLDERS])
def test_a_link_out_of_a_run_is_named_and_nobody_goes_on_with_it(strange, read, coevo, name):
    elsewhere = Path("elsewhere").absolute()
    if (strange / name).exists():
        (strange / name).rename(elsewhere)
    else:
        elsewhere.mkdir()
    (strange / name).symlink_to(elsewhere)
    before = _state(elsewhere)
    for code, said in [*read(strange), coevo("resume", strange, "--trust")[::2]]:
        assert code == 1
        assert f"{name}' is a symbolic link, which may lead anywhere" in said
    assert _state(elsewhere) == before


def test_a_run_that_is_itself_a_link_of_the_user_is_read(strange, read):
    strange.rename("elsewhere")
    strange.symlink_to("elsewhere")
    assert {code for code, _ in read(strange)} == {0}


def _state(path):
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return [(str(file), hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


@pytest.mark.parametrize("turn", [0, 4])
def test_values_of_another_kind_in_the_journal_are_one_line(strange, read, turn):
    before = (strange / "journal.jsonl").read_bytes()
    for at, (number, place) in enumerate(hostile.journal_places(strange)):
        hostile.wrong_journal(strange, number, place, hostile.WRONG[(at + turn) % len(hostile.WRONG)])
        read(strange, ("show",), (False,))
        (strange / "journal.jsonl").write_bytes(before)


@pytest.mark.parametrize("turn", [0, 4])
@pytest.mark.parametrize("name", ["run.json", "best/best.json"])
def test_values_of_another_kind_in_other_files_are_one_line(strange, read, name, turn):
    text = (strange / name).read_text()
    for number, place in enumerate(hostile.places(json.loads(text))):
        hostile.wrong_json(strange, name, place, hostile.WRONG[(number + turn) % len(hostile.WRONG)])
        read(strange, (QUICK[number % 4],), (False,))
        (strange / name).write_text(text)


@pytest.mark.parametrize(
    "line",
    [
        {"place": "g0009-b00", "lost": [1e999, 0, 0]}, {"place": "g0009-b00", "lost": [-100000, 0, 0]},
        {"place": "g0009-b00", "lost": [10**400, 0, 0]}, {"place": "g0009-b00", "lost": [1.9, 0, 0]},
        {"place": "g0009-b00", "lost": "123"}, {"place": "g0009-b00", "lost": [1, 2]},
        {"place": "g0009-b00\0", "lost": [0, 0, 0]}, {"place": "g0009-b00\ud800", "lost": [0, 0, 0]},
        {"place": "../../other", "lost": [0, 0, 0]}, {"place": "/tmp/other", "lost": [0, 0, 0]},
    ],
    ids=str,
)  # fmt: skip
def test_notes_of_what_was_asked_hold_counts_and_lead_nowhere_else(strange, coevo, line):
    (strange / "asked.jsonl").write_text(json.dumps(line) + "\n")
    code, _, said = coevo("show", strange)
    assert (code, said.count("\n")) == (1, 1)
    assert "line 1 of " in said
    assert "is no note of what was asked; the file was changed" in said


@pytest.mark.parametrize("at", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "-1", ""])
def test_a_generation_that_is_no_number_is_the_users_mistake(strange, coevo, at):
    code, _, said = coevo("replay", strange, "--at", at)
    assert (code, said.count("\n")) == (2, 1)
    assert len(said) < 300


@pytest.mark.parametrize("new", [1.7e308, []], ids=repr)
def test_rollouts_and_notes_of_another_kind_are_one_line(strange, read, new):
    rollout = hostile.first_rollout(strange)
    for place in hostile.places(rollout):
        text = json.dumps(hostile.changed(rollout, place, new)) + "\n"
        hostile.unfinished(strange, hostile.frame(text.encode()))
        read(strange, ("show",), (False,))
    for place in hostile.places(note := {"place": "g0009-b00", "lost": [0, 0, 0]}):
        hostile.unfinished(strange, b"", json.dumps(hostile.changed(note, place, new)) + "\n")
        read(strange, ("show",), (False,))


def test_the_file_and_the_key_are_named(strange, coevo):
    hostile.wrong_json(strange, "run.json", ("task", "direction"), 5)
    code, _, said = coevo("show", strange)
    assert code == 1
    assert said == (
        f"coevo: '{strange}/run.json': key 'task.direction' got 5: input should be 'minimize' or 'maximize'; the run's "
        "folder is damaged\n"
    )


def test_numbers_at_the_edge_of_floats_are_shown(strange, read):
    lines = hostile.lines_of(strange)
    for line in lines:
        if line["kind"] in ("batch", "probe"):
            line["objectives"] = [1.7e308, 1.7e308, -1.7e308]
            line["metrics"] = dict.fromkeys(line["metrics"], 1.7e308)
    hostile.write_journal(strange, lines)
    assert {code for code, _ in read(strange, ("show", "compare"), (False,))} == {0}


@pytest.mark.parametrize("name", ["run.json", "best/best.json", "journal.jsonl", "asked.jsonl"])
@pytest.mark.parametrize(
    "text",
    ['{"a": ' * 500 + "1" + "}" * 500, "[" * 200_000 + "]" * 200_000, f'{{"a": {"9" * 5000}}}', '{"a": 1e999}',
     '{"a": "' + "x" * 10_000_000 + '"}', "\0" * 1000, ""],
    ids=["deep", "deeper", "digits", "infinite", "long", "zeros", "empty"],
)  # fmt: skip
def test_bombs_of_json_do_no_harm(strange, read, name, text):
    (strange / name).write_text(text + "\n")
    read(strange, QUICK, (False,))


def test_bombs_of_zstd_are_damage(strange, read):
    hostile.unfinished(strange, hostile.frame(BOMB))
    code, said = read(strange, ("show",), (False,))[0]
    assert code == 1
    assert "has a chunk of more than 268,435,456 bytes; the run's folder is damaged" in said


def test_a_file_without_end_is_damage(strange, read):
    with (strange / "journal.jsonl").open("ab") as file:
        file.truncate(1 << 40)
    assert {code for code, _ in read(strange, QUICK, (False,))} == {1}


def test_export_copies_nothing_from_outside_of_the_base(strange, coevo):
    secret = Path("secret").absolute()
    secret.write_text("key")
    base = Path(shutil.copytree(strange.parent / json.loads((strange / "run.json").read_text())["engine"]["base"], "b"))
    (base / "vocab.txt").symlink_to(secret)
    hostile.wrong_json(strange, "run.json", ("engine", "base"), str(base.absolute()))
    code, _, said = coevo("export", strange, "--out", "exported")
    assert code == 2
    assert f"leads to '{secret}', out of its folder" in said
    assert not Path("exported").exists()


@pytest.fixture
def coded(strange):
    """The run with code wherever coevo might find it, and the file that it would make."""
    marker = Path("marker").absolute()
    evil = hostile.leave_code(strange, marker)
    hostile.wrong_config(strange, "plugins", [*read_file(strange / "config.toml")["plugins"], str(evil)])
    return strange, marker


def test_reading_runs_no_code_that_is_there(coded, read):
    strange, marker = coded
    assert {code for code, _ in read(strange)} == {0}
    assert not marker.exists()


@pytest.mark.parametrize("command", ["resume", "serve", "tune"])
def test_to_go_on_with_a_strangers_run_needs_a_word(coded, coevo, monkeypatch, command):
    strange, marker = coded
    code, _, said = coevo(command, strange)
    assert (code, said.count("\n")) == (2, 1)
    assert "evil.py') has never been run by you, and may be a stranger's; if you trust it: coevo " in said
    monkeypatch.chdir(strange)
    assert coevo(command, ".")[0] == 2
    assert not marker.exists()


def test_a_word_is_enough_and_is_remembered(coded, coevo):
    strange, marker = coded
    assert coevo("resume", strange, "--trust", "--quiet")[0] == 0
    marker.unlink()
    assert coevo("resume", strange, "--quiet")[0] == 0
    assert marker.exists()


def test_code_that_has_changed_needs_the_word_again(coded, coevo):
    strange, marker = coded
    assert coevo("resume", strange, "--trust", "--quiet")[0] == 0
    (plugin,) = Path(strange).parent.rglob("evil.py")
    plugin.write_text(plugin.read_text("utf-8") + "\n# and more\n", encoding="utf-8")
    marker.unlink()
    code, _, said = coevo("resume", strange, "--quiet")
    assert (code, "has never been run by you" in said) == (2, True)
    assert not marker.exists()


def test_a_module_beside_the_code_that_has_changed_needs_the_word_again(coded, coevo):
    strange, marker = coded
    (plugin,) = Path(strange).parent.rglob("evil.py")
    plugin.write_text("import aside_of_evil\n" + plugin.read_text("utf-8"), encoding="utf-8")
    aside = plugin.parent / "aside_of_evil.py"
    aside.write_text("x = 1\n", encoding="utf-8")
    try:
        assert coevo("resume", strange, "--trust", "--quiet")[0] == 0
        assert coevo("resume", strange, "--quiet")[0] == 0
        marker.unlink()
        aside.write_text("x = 2\n", encoding="utf-8")
        code, _, said = coevo("resume", strange, "--quiet")
        assert (code, "has never been run by you" in said, marker.exists()) == (2, True, False)
    finally:
        sys.modules.pop("aside_of_evil", None)


@pytest.mark.parametrize("name", [".hidden.py", "runs/deep.py", "data.bin"])
def test_any_file_of_a_strangers_problem_that_has_changed_needs_the_word_again(strange, coevo, tmp_path, name):
    problem = tmp_path / "problem"
    shutil.copytree(Path(__file__).parents[2] / "tasks/coevo_heuristics/problems/bpp_online", problem)
    hidden = problem / name
    hidden.parent.mkdir(exist_ok=True)
    hidden.write_text("x = 1\n", encoding="utf-8")
    hostile.wrong_config(strange, "aim", {"folder": str(problem)})
    code, _, said = coevo("resume", strange, "--quiet")
    assert (code, f"runs {str(problem)!r}" in said) == (2, True)
    assert "has never been run by you" not in coevo("resume", strange, "--quiet", "--trust")[2]
    assert "has never been run by you" not in coevo("resume", strange, "--quiet")[2]
    hidden.write_text("x = 2\n", encoding="utf-8")
    assert "has never been run by you" in coevo("resume", strange, "--quiet")[2]


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_text_that_names_what_never_ends_is_not_read(strange, coevo, tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    named = str(tmp_path / "pipe") if kind == "pipe" else "/dev/zero"
    hostile.wrong_config(strange, "aim", {"folder": named})
    for words in ([], ["--trust"], []):  # and not once it is agreed to
        code, _, said = coevo("resume", strange, *words)
        assert (code, "Traceback" in said) == (2, False)


def test_a_folder_of_too_many_files_is_refused_in_a_line(strange, coevo, tmp_path, monkeypatch):
    from coevo.host import hashes

    monkeypatch.setattr(hashes, "_MOST_CONTENTS", 3)
    for number in range(4):
        (tmp_path / "many" / f"{number}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "many" / f"{number}.py").write_text("")
    hostile.wrong_config(strange, "aim", {"folder": str(tmp_path / "many")})
    code, _, said = coevo("resume", strange, "--trust")
    assert (code, said.count("\n")) == (2, 1)
    assert "holds more than 3 files" in said


@pytest.mark.parametrize("command", ["resume", "serve"])
@pytest.mark.parametrize("pool", [False, True])
def test_the_question_names_servers_and_what_is_sent_there(strange, coevo, pool, command):
    options = {"base_url": "http://me:secret@evil.example/v1", "key_env": "AWS_SECRET"}
    hostile.wrong_config(strange, "engine", "ray" if pool else "openai")
    table = {"engine": "openai", "options": options, "address": "evil:6379"} if pool else options
    hostile.wrong_config(strange, "ray" if pool else "openai", table)
    code, _, said = coevo(command, strange)
    assert (code, said.count("\n")) == (2, 1)
    assert "connects to 'http://evil.example/v1'" in said
    assert "sends what the environment variable AWS_SECRET holds" in said
    assert ("connects to 'evil:6379'" in said) == pool
    assert "secret@" not in said


def test_the_key_that_is_sent_by_default_is_named_too(strange, coevo):
    hostile.wrong_config(strange, "engine", "openai")
    hostile.wrong_config(strange, "openai", {"base_url": "http://evil.example/v1"})
    assert "sends what the environment variable OPENAI_API_KEY holds" in coevo("resume", strange)[2]


def test_a_run_is_called_by_its_name_from_inside_too(strange, coevo, monkeypatch):
    monkeypatch.chdir(strange)
    assert "of run 'strange' names" in coevo("resume", ".")[2]
    monkeypatch.chdir(strange / "rollouts")
    assert "of run 'strange' names" in coevo("resume", "..")[2]


def test_who_began_a_run_may_edit_its_numbers_and_go_on(coevo, small):
    assert coevo("run", *small, "--generations", "1", "--name", "a", "--quiet")[0] == 0
    hostile.wrong_config(Path("runs/a"), "judge_best", False)
    assert coevo("resume", "a", "--quiet")[0] == 0


@pytest.mark.parametrize("command", [["tasks"], ["options", "param", "es"], ["run", "--generations", "1"]])
def test_the_plugin_of_a_folder_needs_a_word(coevo, command):
    marker = Path("marker").absolute()
    hostile.leave_code(Path(), marker)
    code, _, said = coevo(*command)
    assert (code, said.count("\n"), marker.exists()) == (2, 1, False)
    assert "coevo_plugin.py' of this folder has never been run by you" in said


@pytest.mark.parametrize("how", ["flag", "environment", "named"])
def test_each_way_to_give_the_word_is_remembered_until_the_file_changes(coevo, monkeypatch, how):
    marker = Path("marker").absolute()
    hostile.leave_code(Path(), marker)
    with monkeypatch.context() as here:
        if how == "environment":
            here.setenv("COEVO_TRUST", "1")
        given = {"flag": ["--trust"], "named": ["--plugin", "coevo_plugin.py"]}.get(how, [])
        assert coevo("tasks", *given)[0] == 0
    marker.unlink()
    assert coevo("tasks")[0] == 0
    assert marker.exists()
    with Path("coevo_plugin.py").open("a") as file:
        file.write("# another\n")
    assert coevo("tasks")[0] == 2


def test_help_and_the_list_of_plugins_go_without_the_plugin_of_the_folder(coevo):
    marker = Path("marker").absolute()
    hostile.leave_code(Path(), marker)
    assert coevo("--help")[0] == 0
    found = {plugin["name"]: plugin for plugin in json.loads(coevo("plugins", "--json")[1])}
    assert "never run" in found["coevo_plugin"]["error"]
    assert not marker.exists()


def test_bytecode_beside_a_plugin_is_not_run(coevo):
    """Unchecked bytecode is taken by Python whatever the source says."""
    import importlib.util
    import marshal

    marker = Path("marker").absolute()
    Path("mine.py").write_text("")
    cached = Path(importlib.util.cache_from_source("mine.py"))
    cached.parent.mkdir()
    code = compile(f"open({str(marker)!r}, 'w')", "mine.py", "exec")
    cached.write_bytes(importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code))
    assert coevo("tasks", "--plugin", "mine.py")[0] == 0
    assert not marker.exists()


@pytest.mark.parametrize(("answer", "ran"), [(b"y\n", True), (b"\n", False)])
def test_at_a_terminal_the_user_is_asked(answer, ran):
    marker = Path("marker").absolute()
    hostile.leave_code(Path(), marker)
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "coevo", "tasks"], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs,
            check=False,
        )  # fmt: skip
        said = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "run it? [y/N]" in said
    assert (done.returncode, marker.exists()) == (0 if ran else 2, ran)


def test_in_a_process_of_its_own_a_strangers_folder_is_read_from_inside(coded):
    strange, marker = coded
    done = subprocess.run(
        [sys.executable, "-P", "-m", "coevo", "show", "."], cwd=strange, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr, marker.exists()) == (0, "", False)
