"""docs/your-own-problem.md: everything on the page is done here, in its order, with an engine that needs no model."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/your-own-problem.md").read_text(encoding="utf-8")
FOLDER = re.findall(r"^`cover/([\w.]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = re.findall(r"^(?:ok|warning|failure|holds|does not hold)\b.*$", PAGE, re.MULTILINE)
SPEAKER = str(Path(__file__).with_name("speaker.py"))


@pytest.fixture
def cover(coevo):
    """The folder that the page makes: first as it is written, then with the three files of the page."""
    assert coevo("new", "problem", "cover")[0] == 0
    assert {name for name, _ in FOLDER} == {path.name for path in Path("cover").iterdir()}
    for name, text in FOLDER:
        Path("cover", name).write_text(text, encoding="utf-8")
    return Path("cover")


def is_shown(line):
    """Whether the page has the line; it cuts long ones."""
    return any(line == shown or (shown.endswith("…") and line.startswith(shown[:-1])) for shown in SHOWN)


def test_the_folder_is_checked_as_the_page_shows(cover, coevo):
    code, said, complaint = coevo("check", "cover")
    assert (code, complaint) == (0, "")
    rows = [line for line in said.splitlines() if not line.startswith("one evaluation takes ")]
    assert [line for line in rows if not is_shown(line)] == []
    assert len(rows) == len([line for line in SHOWN if not line.startswith(("failure", "does not"))])


def test_the_mistake_of_the_page_is_found_as_it_shows(cover, coevo):
    refusal = '    if not reaches[solution].any(axis=0).all():\n        raise ValueError("a zone is not reached")\n'
    text = (cover / "evaluate.py").read_text()
    assert refusal in text
    (cover / "evaluate.py").write_text(text.replace(refusal, ""))
    code, said, _ = coevo("check", "cover")
    assert code == 1
    wrong = [line for line in said.splitlines() if line.startswith(("failure", "does not hold"))]
    assert len(wrong) == 3
    assert [line for line in wrong if not is_shown(line)] == []


def test_the_run_of_the_page_finds_a_heuristic_that_is_used_as_it_says(cover, coevo):
    (command,) = re.findall(r"^coevo run (--task cover .*)$", PAGE, re.MULTILINE)
    small = ["--engine", "speaker", "--plugin", SPEAKER, "--set", "es.sigma=0.3", "--set", "probe.every=0", "--quiet"]
    code, said, complaint = coevo("run", *command.split(), *small)
    assert (code, complaint) == (0, "")
    assert "beats cheapest_first" in said
    assert "runs/cover-es-eoh-1/best/heuristic.py" in said
    (code,) = re.findall(r"^```python\n(from pathlib.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "<page>", "exec"), {})
    assert 0 < float(printed.getvalue()) < 196.28333  # the seed's value, which the page names
    assert "cheapest first: 196.28333" in code


def test_what_the_run_of_the_page_found_has_the_value_that_the_page_says(cover):
    from coevo.sandbox import Evaluator
    from coevo_heuristics import from_folder

    (answer,) = re.findall(r"^path .*cover-es-eoh-1/best/heuristic\.py\n(?:.*\n)*?\n    (\S.*)$", PAGE, re.MULTILINE)
    (value,) = re.findall(r"\.objective\)  # ([\d.]+);", PAGE)
    source = from_folder(cover).template.render(answer)
    with Evaluator(cover, "test", "choose", workers=1) as evaluator:
        assert evaluator.evaluate(source).objective == float(value)
        assert evaluator.evaluate((cover / "template.py").read_text()).objective == 196.28333
