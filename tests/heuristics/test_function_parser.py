import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo_heuristics.parser import Entry, parse_function

ENTRY = Entry("select", 2, frozenset({"np"}))
BODY = "def select(here, nodes):\n    return nodes[0]"


def parse(text: str, truncated: bool = False):
    return parse_function(text, ENTRY, truncated)


def defined(source: str) -> list[str]:
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize(
    "text",
    [
        BODY,
        f"```python\n{BODY}\n```",
        f"```\n{BODY}\n```",
        f"~~~py\n{BODY}\n~~~",
        f"Sure!\n\n```python\n{BODY}\n```\nIt takes the first.",
        f"```python\n{BODY}",
        f"{BODY}\n\nThis function takes the first node.",
        f"Here it is:\n\n{BODY}\n",
        f"- like this:\n\n    ```python\n    {BODY.replace(chr(10), chr(10) + '    ')}\n    ```\n",
        f"<think>def select(here): return 1</think>\n```python\n{BODY}\n```",
        f"take the first one.\n</think>\n{BODY}",
        f"```python\n{BODY}\n```".replace("\n", "\r\n"),
        f"\ufeff{BODY}",
        f"```python\n{BODY}\n\nprint(select(0, [1, 2]))\n```",
        f"```python\n{BODY}\n\nif __name__ == '__main__':\n    nodes = [1]\n    select(0, nodes)\n```",
        f"```python\n{BODY}\n\nnodes = [1, 2]\nbest = select(0, nodes)\n```",
        f"```python\n{BODY}\nThis is why it works\n```",
        BODY.replace("select", "select_v2"),
        BODY.replace("select", "select_v1"),
        BODY.replace("select", "choose_next"),
        f"def select(here, nodes):\n    ...\n\n{BODY}",
        f"```text\nthe idea\n```\n```python\n{BODY}\n```",
    ],
)
def test_the_same_function_is_found_in_every_dress(text: str) -> None:
    answer = parse(text)
    assert answer.status == "ok", answer
    assert ast.dump(ast.parse(answer.text)) == ast.dump(ast.parse(BODY))


@pytest.mark.parametrize(
    ("text", "status", "reason"),
    [
        ("", "no_answer", "no Python code"),
        ("I cannot do that.", "no_answer", "no Python code"),
        ("<think>def select(a, b):\n    return b", "no_answer", "thinking never ends"),
        ("```python\n```", "no_answer", "no Python code"),
        ("```python\ndef select(here, nodes)\n    return nodes[0]\n```", "syntax", "expected ':'"),
        ("```python\ndef select(here, nodes):\nreturn nodes[0]\n```", "syntax", "indented block"),
        ("def select(here, nodes):\n    return (nodes[0]", "syntax", "never closed"),
        ("```python\nimport numpy as np\n\ndef select(here, nodes:\n    pass\n```", "syntax", "line"),
        ("```python\nreturn nodes[0]\n```", "syntax", "outside function"),
        ("def select(here, nodes):\n    x = " + "(" * 300 + "1" + ")" * 300 + "\n    return x", "syntax", "nest"),
        ("import numpy as np\nx = 1", "no_entry", "no function 'select'"),
        ("def first(a):\n    return a", "no_entry", "defined: first"),
        ("def first(a, b):\n    return a\n\ndef second(a, b):\n    return b", "no_entry", "first, second"),
        ("def select(here):\n    return 0", "no_entry", "2 arguments"),
        ("def select(here, nodes, more):\n    return 0", "no_entry", "2 arguments"),
        ("def select(here, nodes, *, more):\n    return 0", "no_entry", "2 arguments"),
        ("class Chooser:\n    def select(self, here, nodes):\n        return 0", "no_entry", "no function"),
        ("async def select(here, nodes):\n    return 0", "no_entry", "no function"),
        ("select = lambda here, nodes: 0\n\ndef select3(a):\n    return 1", "no_entry", "2 arguments"),
    ],
)
def test_each_kind_of_failure_has_its_status_and_reason(text: str, status: str, reason: str) -> None:
    answer = parse(text)
    assert (answer.status, answer.text) == (status, "")
    assert reason in answer.message
    assert "\n" not in answer.message


@pytest.mark.parametrize(
    "signature", ["here, nodes, more=1", "*everything", "here, *rest", "here, nodes, /", "here, nodes, *, k=2, **o"]
)
def test_what_can_be_called_with_the_arguments_is_accepted(signature: str) -> None:
    assert parse(f"def select({signature}):\n    return 1").status == "ok"


def test_imports_and_helpers_that_are_needed_are_kept_and_nothing_else() -> None:
    answer = parse(
        "```python\n"
        "from __future__ import annotations\nimport math\nimport networkx\nfrom numpy import *\n"
        "WEIGHTS = {'near': 1.0}\nWEIGHTS['far'] = 0.5\nUNUSED = 3\n\n"
        "def helper(x):\n    # keep me\n    return math.sqrt(x) * WEIGHTS['far']\n\n"
        "def unused(x):\n    return x\n\n"
        "def select(here, nodes):\n    return helper(nodes[0])\n\n"
        "print(select(1, [2]))\n```"
    )
    assert defined(answer.text) == ["helper", "select"]
    for kept in ("import math", "from numpy import *", "__future__", "WEIGHTS['far'] = 0.5", "# keep me"):
        assert kept in answer.text
    for dropped in ("networkx", "UNUSED", "print", "def unused"):
        assert dropped not in answer.text


def test_a_demonstration_on_names_like_the_parameters_is_dropped() -> None:
    demonstration = "nodes = [3, 1]\nhere = nodes[0]\nfor node in nodes:\n    print(select(here, nodes))\n"
    assert parse(f"```python\n{BODY}\n\n{demonstration}```").text == BODY


def test_braces_in_the_code_do_not_become_the_thought() -> None:
    code = (
        "def select(here, nodes):\n    table = {'here': here, 'count': len(nodes)}\n"
        "    name = f'{here}: {len(nodes)} nodes left'\n    return nodes[table['here'] * 0]"
    )
    for text in (
        f"{{Take the first node always.}}\n```python\n{code}\n```",
        f"{{Take the first node always.}}\n{code}",
    ):
        answer = parse(text)
        assert answer.thought == "Take the first node always."
        assert answer.text == code


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        (
            f"Sure! Here it is:\n**Idea:**\nGo to the first node. Then stop.\n```python\n{BODY}\n```",
            "Go to the first node.",
        ),
        (f"1. **Take the first** node of all\n\n{BODY}", "Take the first node of all"),
        (f"```python\n{BODY}\n```\nThe first node is taken.", "The first node is taken."),
        (
            'def select(here, nodes):\n    """Take the first\n    node.\n\n    More.\n    """\n    return 0',
            "Take the first node.",
        ),
        (f"Here is the code:\n\n{BODY}", "Here is the code:"),
        (BODY, ""),
        (f"{{Nächster Knoten, très simple — 最近}}\n{BODY}", "Nächster Knoten, très simple — 最近"),
    ],
)
def test_the_thought_comes_from_the_text_around_the_code(text: str, thought: str) -> None:
    answer = parse(text)
    assert (answer.status, answer.thought) == ("ok", thought)


def test_the_longest_block_with_the_entry_wins_and_of_equal_ones_the_last() -> None:
    long = (
        "def select(here, nodes):\n    best = nodes[0]\n    for n in nodes:\n        best += n\n    return max(best, 1)"
    )
    assert parse(f"```python\n{BODY}\n```\nbetter:\n```python\n{long}\n```").text == long
    assert parse(f"```python\n{long}\n```\nused as\n```python\nselect(0, [1])\n```").text == long
    assert parse(f"```python\n{BODY}\n```\n```python\n{BODY.replace('0', '1')}\n```").text == BODY.replace("0", "1")
    broken = long.replace("max(", "max((")
    assert parse(f"```python\n{broken}\n```\n```python\n{BODY}\n```").text == BODY


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("[THINK]", "[/THINK]"),
        ("<thought>\n", "</thought>\n\n"),
        ("", "</think>"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ],
)
def test_a_draft_is_no_answer_even_if_it_is_longer(begin: str, end: str) -> None:
    draft = f"```python\n{BODY.replace('return', 'nodes = sorted(nodes)' + chr(10) + '    return')}\n```"
    assert parse(f"{begin}{draft}\nShorter is better.{end}```python\n{BODY}\n```").text == BODY
    if begin:
        answer = parse(f"{begin}{draft}\nShorter", truncated=True)
        assert (answer.status, answer.text) == ("no_answer", "")


def test_a_program_that_names_marks_of_thinking_stays_whole() -> None:
    program = 'def select(here, nodes):\n    # after </think>\n    return str(nodes).split("<think>")[0]'
    assert parse(f"<think>hm</think>\n```python\n{program}\n```").text == program


def test_a_helper_in_a_block_of_its_own_is_brought_along() -> None:
    answer = parse(
        "First a helper:\n```python\nimport math\ndef root(x):\n    return math.sqrt(x)\n```\n"
        "Then:\n```python\ndef select(here, nodes):\n    return root(nodes[0])\n```"
    )
    assert defined(answer.text) == ["root", "select"]
    assert "import math" in answer.text


def test_a_versioned_name_is_renamed_everywhere_but_not_in_attributes() -> None:
    answer = parse(
        "def select_v2(here, nodes):\n    if len(nodes) > 3:\n        return select_v2(here, nodes[1:])\n"
        "    return here.select_v2"
    )
    assert answer.text == (
        "def select(here, nodes):\n    if len(nodes) > 3:\n        return select(here, nodes[1:])\n"
        "    return here.select_v2"
    )


def test_nested_functions_and_early_returns_stay_as_they_are() -> None:
    code = (
        "def select(here, nodes):\n    def cost(node):\n        if node == here:\n            return 0\n"
        "        return abs(node - here)\n\n    if len(nodes) == 1:\n        return nodes[0]\n"
        "    for node in nodes:\n        if cost(node) < 1:\n            return node\n    return min(nodes, key=cost)"
    )
    assert parse(f"```python\n{code}\n```").text == code


WHOLE = "def select(here, nodes):\n    best = nodes[0]\n    return best"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"```python\n{WHOLE}\n\n# Example\nnodes = [1, 2", WHOLE),
        (f"```python\n{WHOLE}\n\ndef other(x):\n    y = x\n    z = (", WHOLE),
        (f"{WHOLE}\n\n@cache\ndef other(x):\n    y = x[", WHOLE),
        (f"```python\n{WHOLE}\n    print('never", WHOLE),
    ],
)
def test_a_tail_cut_off_by_the_token_limit_is_dropped_where_the_rest_still_returns(text: str, kept: str) -> None:
    assert parse(text, truncated=True).text == kept
    assert parse(text, truncated=False).status == "syntax"


@pytest.mark.parametrize(
    "text",
    [
        "```python\ndef select(here, nodes):\n    best = nodes[0]\n    return max(best,",
        "```python\ndef select(here, nodes):\n    if here:\n        return 1\n    for n in nodes:\n        x = (",
        "```python\ndef helper(x):\n    return x\n\ndef select(here, no",
    ],
)
def test_half_a_function_is_not_repaired_into_one_that_forgets_to_return(text: str) -> None:
    assert parse(text, truncated=True).status == "syntax"


@given(st.text(max_size=300), st.booleans())
def test_any_text_has_a_status(text: str, truncated: bool) -> None:
    answer = parse(text, truncated)
    assert answer.status in ("ok", "no_answer", "syntax", "no_entry")
    assert (answer.status == "ok") == bool(answer.text)
    assert (answer.status == "ok") != bool(answer.message)


FENCES = ("```python", "```", "~~~", "</think>", "<think>", "Text.", "", "{a thought in braces}")
CODE = ("def select(here, nodes):", "    return nodes", "    x = {1: 'a'}", "import math", "def f(x):", "    if x:")
BROKEN = ("        return f(x", "@f", "x = [", "1]; y = 2", "x = 1")
LINES = st.sampled_from((*FENCES, *CODE, *BROKEN))


@given(st.lists(LINES, max_size=14).map("\n".join), st.booleans())
def test_whatever_is_accepted_compiles_and_defines_the_entry(text: str, truncated: bool) -> None:
    answer = parse(text, truncated)
    if answer.status == "ok":
        compile(answer.text, "<test>", "exec")
        assert "select" in defined(answer.text)


@given(
    st.sampled_from(["", "Some words here.\n", "{An idea in braces.}\n"]),
    st.sampled_from(["", "\nEnd of it.", "\n\n1. why"]),
)
def test_talk_around_a_fence_changes_nothing(before: str, after: str) -> None:
    assert parse(f"{before}```python\n{BODY}\n```{after}").text == BODY
