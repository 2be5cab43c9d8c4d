"""A model folder's own code is never run, be it of its tokenizer, configuration or model, and nobody is asked."""

import ast
import json
from pathlib import Path

import pytest

import coevo
from coevo.engines.adapting import AdaptingEngine
from coevo.errors import UserError
from coevo_transformers.engine import TransformersEngine
from tests.tiny_llama import save_tiny_llama

CODE = "import pathlib\npathlib.Path('ran').touch()\nclass Mine:\n    pass\n"
ROOT = Path(coevo.__file__).parents[1]
LOADERS = ("AutoTokenizer", "AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoProcessor")


def with_code(folder, file, **changes):
    """A model folder of which one file says that code beside it makes a part of it."""
    save_tiny_llama(folder)
    (folder / "mine.py").write_text(CODE)
    data = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**data, **changes}))
    return folder


def _nobody_is_asked(*_):
    raise AssertionError("the user was asked whether to run the code")


FOLDERS = {
    "tokenizer": ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["mine.Mine", "mine.Mine"]},
                                            "tokenizer_class": "Mine"}),
    "model": ("config.json", {"auto_map": dict.fromkeys(LOADERS, "mine.Mine"), "model_type": "mine"}),
}  # fmt: skip


@pytest.mark.parametrize("part", FOLDERS)
def test_no_code_of_a_folder_is_run_and_nobody_is_asked(in_empty_folder, tmp_path, monkeypatch, part):
    file, changes = FOLDERS[part]
    folder = with_code(tmp_path / "model", file, **changes)
    monkeypatch.setattr("builtins.input", _nobody_is_asked)
    with pytest.raises(UserError, match="contains custom code"):
        TransformersEngine(str(folder))
    with pytest.raises(UserError, match="contains custom code"):
        AdaptingEngine.token_counter(str(folder), {})
    assert not Path("ran").exists()


def test_every_loader_is_told_to_run_no_code():
    calls = []
    for path in [*ROOT.glob("coevo/**/*.py"), *ROOT.glob("plugins/**/*.py"), *ROOT.glob("tasks/**/*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ("from_pretrained", "from_config") and ast.unparse(node.func.value).endswith(LOADERS):
                told = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                calls.append((path.name, node.lineno, told.get("trust_remote_code")))
    assert len(calls) >= 6
    assert [call for call in calls if call[2] != "False"] == []
