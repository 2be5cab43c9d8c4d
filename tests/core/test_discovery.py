"""Finding and loading plugins, and what a registry does with their factories."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import pluggy
import pytest
from pydantic import Field

from coevo import hookimpl
from coevo.errors import PluginError, UserError, did_you_mean
from coevo.host import discovery, hookspecs
from coevo.host.discovery import Plugins
from coevo.host.registry import Registry

if TYPE_CHECKING:
    from nowhere import Unimportable


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COEVO_PLUGINS", raising=False)


class Made:
    """A thing to make.

    Args:
        services: of the run.
    """

    def __init__(
        self,
        services: Unimportable,
        size: Annotated[int, Field(ge=1)] = 3,
        kind: Literal["a", "b"] = "a",
        other: Unimportable | None = None,
    ) -> None:
        self.services, self.size, self.kind, self.other = services, size, kind, other
        if size == 7:
            raise ValueError("seven is not allowed")


def registry():
    things = Registry("thing")
    things.plugin = "here"
    things.register("made", Made)
    return things


def test_options_are_those_of_the_signature_and_what_the_run_gives_is_none():
    things = registry()
    assert [o.name for o in things.options("made")] == ["size", "kind", "other"]
    assert things.entry("made").summary == "A thing to make."
    made = things.create("made", {"size": 4}, services="s", brief="b")
    assert (made.services, made.size, made.kind) == ("s", 4, "a")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"siz": 1}, "thing 'made' has no option 'siz'; did you mean 'size'?"),
        ({"size": 0}, "thing 'made': option 'size' got 0: input should be greater than or equal to 1"),
        ({"size": "x"}, "thing 'made': option 'size' got 'x'"),
        ({"size": float("nan")}, "thing 'made': option 'size' must be a finite number, got nan"),
        ({"kind": "c"}, "thing 'made': option 'kind' got 'c': input should be 'a' or 'b'"),
        ({"size": 7}, "thing 'made': seven is not allowed"),
    ],
)
def test_a_wrong_option_is_named(options, said):
    with pytest.raises(UserError) as refused:
        registry().create("made", options, services=None)
    assert said in str(refused.value)


def test_an_annotation_that_only_a_type_checker_knows_leaves_the_others_checked():
    options = {option.name: option.annotation for option in registry().options("made")}
    assert options["other"] is inspect.Parameter.empty
    assert registry().validate("made", {"other": 3, "size": "5"}) == {"other": 3, "size": 5}


def test_a_required_option_says_how_to_give_it():
    things = Registry("thing")
    things.register("needy", lambda folder: folder)
    with pytest.raises(UserError, match=r"needs option 'folder'; give it with --set needy\.folder="):
        things.validate("needy", {})


def test_did_you_mean_names_the_closest_or_all():
    assert did_you_mean("sigm", ["sigma", "alpha"]) == "; did you mean 'sigma'?"
    assert did_you_mean("zzz", ["sigma", "alpha"]) == "; expected one of: alpha, sigma"
    assert did_you_mean("zzz", []) == ""


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("esx", "es"), ("rnu", "run"), ("tsk", "task"), ("eohh", "eoh"), ("float8", "float32"),
        ("temprature", "temperature"), ("transform", "transformers"), ("smollm2", "smollm2-135m"),
        ("construct", "tsp_construct"),
    ],
)  # fmt: skip
def test_a_slip_of_the_hand_is_mended(word: str, known: str):
    assert did_you_mean(word, [known, "quite-another"]) == f"; did you mean {known!r}?"


@pytest.mark.parametrize(("word", "known"), [("nope", "openai"), ("nope", "k-none"), ("ab", "ba-ab"), ("x", "es")])
def test_a_word_that_shares_some_letters_by_chance_is_no_slip(word: str, known: str):
    assert did_you_mean(word, [known]) == f"; expected one of: {known}"


def manager(*modules):
    found = pluggy.PluginManager(hookspecs.PROJECT)
    found.add_hookspecs(hookspecs)
    for module in modules:
        found.register(module, type(module).__name__)
    return Plugins(found)


class First:
    @hookimpl
    def register_tasks(self, tasks):
        tasks.register("t", dict)


class Second(First):
    pass


class Raises:
    @hookimpl
    def register_engines(self):
        raise KeyError("gone")


def test_the_newcomer_of_two_is_blamed():
    with pytest.raises(PluginError, match="task 't' is registered twice: by plugin 'First' and by plugin 'Second'"):
        manager(First(), Second()).registries()


def test_a_hook_that_raises_is_named():
    with pytest.raises(PluginError, match="plugin 'Raises': register_engines raised KeyError: 'gone'"):
        manager(Raises()).registries()


def test_an_observer_that_raises_does_not_keep_others_from_hearing():
    heard, complained = [], []

    class Deaf:
        @hookimpl
        def batch_finished(self):
            raise ValueError("x")

    class Hears:
        @hookimpl
        def batch_finished(self, report):
            heard.append(report)

    plugins = manager(Deaf(), Hears())
    discovery.notify(plugins.manager, "batch_finished", lambda name, e: complained.append((name, str(e))), report=1)
    assert (heard, complained) == ([1], [("Deaf", "x")])


def test_the_local_plugin_and_given_files_are_loaded_once():
    code = "import coevo\n@coevo.hookimpl\ndef register_tasks(tasks):\n    tasks.register({!r}, dict)\n"
    Path("coevo_plugin.py").write_text(code.format("local"))
    Path("es.py").write_text(code.format("named_like_another"))
    plugins = discovery.load(["coevo_plugin.py", "es.py", "./es.py"])
    names = plugins.registries().tasks.names
    assert {"local", "named_like_another"} <= set(names)
    assert [p.source for p in plugins.found if p.source.endswith(".py")] == ["coevo_plugin.py", "es.py"]


def test_nothing_of_coevo_itself_is_broken_or_looks_like_a_mistake():
    plugins = discovery.load()
    assert plugins.broken == []
    assert [plugin.name for plugin in plugins.found if plugin.notes] == []


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def broken(:\n", r"plugin file 'mine\.py' does not import: SyntaxError: .* \(mine\.py:1\)"),
        ("x = 1\nx['a']\n", r"does not import: TypeError: .* \(mine\.py:2, in <module>\)"),
        ("raise SystemExit(2)\n", r"does not import: SystemExit: 2 \(mine\.py:1, in <module>\)"),
        ("\0", r"plugin file 'mine\.py' is not UTF-8: it has a zero byte"),
    ],
)
def test_a_plugin_file_that_does_not_import_is_one_line_with_the_place(code, said):
    Path("mine.py").write_text(code)
    with pytest.raises(PluginError, match=said) as refused:
        discovery.load(["mine.py"])
    assert "\n" not in str(refused.value)


def test_a_folder_is_no_plugin_file():
    Path("mine").mkdir()
    with pytest.raises(PluginError, match=r"plugin 'mine' is a folder; .* such as 'mine/__init__\.py'"):
        discovery.load(["mine"])


def test_two_files_of_one_name_are_two_plugins_and_two_modules():
    hook = "@coevo.hookimpl\ndef register_tasks(tasks):\n    tasks.register({!r}, T)\n"
    code = f"import coevo\n\nclass T:\n    pass\n\n{hook}"
    for folder in ("one", "two"):
        Path(folder).mkdir()
        Path(folder, "mine.py").write_text(code.format(folder))
    registries = discovery.load(["one/mine.py", "two/mine.py"]).registries()
    made = [registries.tasks.entry(name).factory for name in ("one", "two")]
    assert [Path(inspect.getfile(factory)).parent.name for factory in made] == ["one", "two"]


class Leaves:
    @hookimpl
    def register_tasks(self):
        raise SystemExit(3)


def test_a_hook_that_leaves_is_named():
    with pytest.raises(PluginError, match=r"plugin 'Leaves': register_tasks raised SystemExit: 3 \(test_dis"):
        manager(Leaves()).registries()


def test_an_observer_that_leaves_does_not_end_the_rest():
    class Gone:
        @hookimpl
        def batch_finished(self):
            raise SystemExit(3)

    said = []
    plugins = manager(Gone())
    discovery.notify(plugins.manager, "batch_finished", lambda name, e: said.append((name, repr(e))), report=1)
    assert said == [("Gone", "SystemExit(3)")]


def test_what_looks_like_a_hook_and_has_no_mark_is_said(capsys):
    from coevo.cli import main

    Path("mine.py").write_text(
        "def register_tasks(tasks):\n    pass\n\ndef register_engine(engines):\n    pass\n\n"
        "def finished():\n    pass\n\ndef _run_started(info):\n    pass\n"
    )
    notes = [
        "register_engine() looks like a hook (did you mean 'register_engines'?) and is never called: it has no "
        "@coevo.hookimpl above it",
        "register_tasks() looks like a hook and is never called: it has no @coevo.hookimpl above it",
    ]
    (found,) = [plugin for plugin in discovery.load(["mine.py"]).found if plugin.name == "mine"]
    assert list(found.notes) == notes
    assert main(["plugins", "--plugin", "mine.py"]) == 0
    assert all(note in capsys.readouterr().out for note in notes[:1])


def logger_of(**methods):
    class Plugin:
        @hookimpl
        def register_loggers(self, loggers):
            loggers.register("mine", type("Mine", (), methods))

    return Plugin()


def run_with(plugin):
    from loop_kit import config, plugins

    import coevo

    return coevo.run({**config(), "loggers": ["mine"], "generations": 1}, plugins(plugin))


def test_a_method_of_a_logger_without_the_mark_is_said_before_the_run(capsys):
    assert run_with(logger_of(batch_finished=lambda self, report: 1 / 0))["status"] == "finished"
    assert capsys.readouterr().err == (
        "coevo: note: logger 'mine': batch_finished() looks like a hook and is never called: it has no "
        "@coevo.hookimpl above it\n"
    )


@hookimpl
def batch_finish(self, report):
    pass


@hookimpl
def batch_finished(self, reprot):
    pass


@hookimpl
async def run_finished(self):
    pass


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (
            {"batch_finish": batch_finish},
            r"logger 'mine': unknown hook 'batch_finish'; did you mean 'batch_finished'",
        ),
        (
            {"batch_finished": batch_finished},
            r"logger 'mine': hook batch_finished\(\) has no argument 'reprot'; write it as: "
            r"def batch_finished\(self, report\)$",
        ),
        (
            {"run_finished": run_finished},
            r"logger 'mine': hook run_finished\(\) is an async function; write it as: "
            r"def run_finished\(self, info, error\)$",
        ),
    ],
)
def test_a_hook_of_a_logger_that_does_not_exist_is_refused_before_anything_is_started(methods, said):
    with pytest.raises(PluginError, match=said) as refused:
        run_with(logger_of(**methods))
    assert "\n" not in str(refused.value)
    assert not Path("runs").exists()


def test_a_wrong_argument_of_a_hook_is_one_line_that_says_how_it_is_written():
    Path("mine.py").write_text("import coevo\n@coevo.hookimpl\ndef register_tasks(task):\n    pass\n")
    with pytest.raises(PluginError) as refused:
        discovery.load(["mine.py"])
    assert str(refused.value).endswith(
        ": hook register_tasks() has no argument 'task'; write it as: def register_tasks(tasks)"
    )
