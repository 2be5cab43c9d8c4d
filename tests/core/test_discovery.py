"""Finding and loading plugins, and what a registry does with their factories."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import pluggy
import pytest
from pydantic import Field

from coevo import discovery, hookimpl, hookspecs
from coevo.discovery import Plugins
from coevo.errors import PluginError, UserError
from coevo.registry import Registry, did_you_mean

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


def test_nothing_of_coevo_itself_is_broken():
    assert discovery.load().broken == []
