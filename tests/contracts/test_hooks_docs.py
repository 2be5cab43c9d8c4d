"""docs/hooks.md lists every hook with its exact arguments, and the plugin that it prints is one that runs."""

import inspect
import json
import re
from pathlib import Path

import coevo
from coevo.host import hookspecs
from coevo.records import Batch, Buffer, Context

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/hooks.md").read_text(encoding="utf-8")
OUTSIDE = Path(__file__).with_name("outside_plugin")


def specs():
    return {
        name: function
        for name, function in vars(hookspecs).items()
        if inspect.isfunction(function) and hasattr(function, "coevo_spec")
    }


def test_every_hook_is_documented_with_its_arguments_and_nothing_else_is():
    expected = [f"{name}({', '.join(inspect.signature(f).parameters)})" for name, f in specs().items()]
    assert re.findall(r"^### (\w+\(.*\))$", PAGE, re.MULTILINE) == expected


def test_every_hook_says_when_it_is_called():
    for name, function in specs().items():
        assert "Called " in function.__doc__, name
        section = PAGE.split(f"### {name}(")[1].split("\n### ")[0].split("\n## ")[0]
        assert "alled once" in " ".join(section.split()) or "Called exactly once" in section, name


def test_the_printed_plugin_is_the_one_that_the_tests_install():
    assert re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1] == (OUTSIDE / "pyproject.toml").read_text()
    code = (OUTSIDE / "coevo_outside/__init__.py").read_text()
    assert re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1] == code
    assert len(code.splitlines()) <= 40


def test_the_state_of_the_printed_plugin_is_json_though_no_answer_was_valid_yet():
    printed = {}
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], printed)
    brief = coevo.Brief("a", "A", "Say a.", components={"prompt": "say a"})
    updater = printed["Encourage"](brief=brief)
    updater.tell(Buffer(Batch((Context({"prompt": "say a"}),)), (), ()))
    state = json.loads(json.dumps(updater.state_dict(), allow_nan=False))
    assert state["components"] == {"prompt": "Try something bolder. say a"}
    again = printed["Encourage"](brief=brief)
    again.load_state_dict(state)
    assert again.state_dict() == state
