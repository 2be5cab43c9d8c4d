import ast
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from coevo.errors import UserError
from coevo_heuristics import from_folder
from coevo_heuristics.canonical import code_key
from coevo_heuristics.problem import Problem
from coevo_heuristics.rendering import load_template


def load(code: str, path: Path) -> ModuleType:
    path.write_text(code, "utf-8")
    spec = importlib.util.spec_from_file_location("rendered", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ARGUMENTS = (0, 0, np.array([1, 2]), np.array([[0.0, 3.0, 1.0], [3.0, 0.0, 2.0], [1.0, 2.0, 0.0]]))


@pytest.mark.parametrize(
    ("hole", "answer", "node"),
    [
        ("expression", "d_current", 2),
        ("expression", "-d_current", 1),
        ("expression", "0", 1),
        ("function", "def select_next_node(a, b, c, d):\n    return c[np.argmax(d[a, c])]", 1),
        ("function", "import numpy as np\n\ndef select_next_node(a, b, c, d):\n    return c[np.argmin(d[a, c])]", 2),
    ],
)
def test_a_rendered_module_is_importable_and_has_the_same_entry(
    folder: Path, tmp_path: Path, hole: str, answer: str, node: int
) -> None:
    template = load_template(Problem(folder), hole)
    code = template.render(answer)
    assert load(code, tmp_path / "rendered.py").select_next_node(*ARGUMENTS) == node
    assert "coevo: hole" not in code


@pytest.mark.parametrize("hole", ["expression", "function"])
def test_the_seed_rendered_is_the_template(folder: Path, hole: str) -> None:
    template = load_template(Problem(folder), hole)
    assert code_key(template.render(template.seed)) == code_key(template.source)


def test_future_imports_move_to_the_top_and_known_imports_are_not_repeated(folder: Path, tmp_path: Path) -> None:
    template = load_template(Problem(folder), "function")
    code = template.render(
        "from __future__ import annotations\nimport numpy as np\nimport math\n\n"
        "def select_next_node(a: Unknown, b, c, d):\n    return c[int(math.sqrt(0))]"
    )
    assert load(code, tmp_path / "rendered.py").select_next_node(*ARGUMENTS) == 1
    assert code.count("import numpy as np") == 1
    assert ast.get_docstring(ast.parse(code))


def test_a_hole_that_the_template_holds_twice_is_refused(folder: Path) -> None:
    file = folder / "template_expression.py"
    file.write_text(file.read_text("utf-8") + "\n# return d_current  # coevo: hole\n", "utf-8")
    with pytest.raises(UserError, match="2 times; expected it once"):
        from_folder(folder, hole="expression")
