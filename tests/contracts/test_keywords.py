"""A constructor with more than five arguments is called by keyword: a list of values says nothing of what each is."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 5


def calls(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and len(node.args) > MOST:
            match node.func:
                case ast.Name(name) | ast.Attribute(attr=name) if name[:1].isupper():
                    yield f"{path.relative_to(ROOT)}:{node.lineno}: {name}"


def test_constructors_with_many_arguments_are_called_by_keyword():
    found = [
        call
        for folder in ("coevo", "plugins", "tasks")
        for path in (ROOT / folder).rglob("*.py")
        for call in calls(path)
    ]
    assert found == []
