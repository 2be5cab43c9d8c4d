"""Optional parts of plugins are asked for in one place: nowhere else does the core look a member up by its name."""

import ast
from pathlib import Path

from coevo import optional

ROOT = Path(__file__).parents[2]
PARTS = [one for one in vars(optional).values() if getattr(one, "_is_protocol", False)]
MEMBERS = {name for part in PARTS for name in (*vars(part), *getattr(part, "__annotations__", ())) if name[0] != "_"}


def asked(path):
    """(line, name) of every attribute that a file looks up by a literal name."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(ast.Name("getattr" | "hasattr"), [_, ast.Constant(name), *_]):
                yield node.lineno, name


def test_there_are_parts_of_tasks_engines_updaters_and_factories():
    assert {"start", "run", "moved", "count_tokens", "credit", "wrap", "check_model", "close"} <= MEMBERS


def test_no_module_of_the_core_asks_a_plugin_by_itself():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "coevo").rglob("*.py"))
        for line, name in asked(path)
        if name in MEMBERS
    ]
    assert found == [], "use coevo.optional.offers"
