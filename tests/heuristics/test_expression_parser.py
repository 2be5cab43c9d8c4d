import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevo_heuristics.parser import parse_expression

NAMES = ("d_current", "d_home", "d_mean")


@pytest.mark.parametrize(
    ("completion", "expression"),
    [
        (" d_current - d_home", "d_current - d_home"),
        ("d_current-d_home\n", "d_current-d_home"),
        (" d_current - (0.1 * d_home)\r\nscore = d_mean", "d_current - (0.1 * d_home)"),
        (" score = d_current * 2", "d_current * 2"),
        (" score = score = d_current * 2", "d_current * 2"),
        (" score=d_current", "d_current"),
        (" return d_current + d_mean", "d_current + d_mean"),
        (" d_current - d_home # nearer home is worse", "d_current - d_home"),
        (" d_current - d_home; print(score)", "d_current - d_home"),
        (" d_current - d_home, where d_home is the way back", "d_current - d_home"),
        (" d_current - d_home where d_home is the way back", "d_current - d_home"),
        (" d_current - d_home.", "d_current - d_home"),
        (" d_current - d_home. The rule is (new", "d_current - d_home"),
        (" d_current - 2. * d_home", "d_current - 2. * d_home"),
        (" d_current - d_home)", "d_current - d_home"),
        (" d_current - d_home`", "d_current - d_home"),
        ("`d_current - d_home`", "d_current - d_home"),
        ("```python\nscore = d_current - d_home\n```\nThis prefers …", "d_current - d_home"),
        (" ```py\nd_current - d_home```", "d_current - d_home"),
        (" d_current - d_home\n```\nThe rule", "d_current - d_home"),
        ("\n\n d_current - d_home", "d_current - d_home"),
        (" (d_current\n    - d_home)\nscore = 1", "(d_current - d_home)"),
        (" np.where(d_current > d_mean,\n  d_home, 0.5)", "np.where(d_current > d_mean, d_home, 0.5)"),
        (" d_current ** 2 + np.log1p(d_home)", "d_current ** 2 + np.log1p(d_home)"),
        (" d_current − 0.5 × d_home", "d_current - 0.5 * d_home"),
        (" d_current\u00a0- d_home\u200b", "d_current - d_home"),
        ("<think>maybe d_home?\nscore = d_mean</think> d_current", "d_current"),
        ("I should subtract.</think>\nscore = d_current - d_home", "d_current - d_home"),
        ("[THINK]score = d_mean[/THINK]score = d_current - d_home", "d_current - d_home"),
        ("<seed:think>\nscore = d_mean\n</seed:think>\n\nd_current", "d_current"),
        (" {'a': d_current}['a'] - d_home", "{'a': d_current}['a'] - d_home"),
        (" np.sum([d_current, d_home], axis=0)", "np.sum([d_current, d_home], axis=0)"),
        (" Here is one line:\nscore = d_current - d_home", "d_current - d_home"),
        (" [x for x in d_current]", "[x for x in d_current]"),
        (" 2.5", "2.5"),
        (" d_currant - d_home", "d_currant - d_home"),
    ],
)
def test_an_expression_is_found_in_what_the_model_wrote(completion: str, expression: str) -> None:
    answer = parse_expression(completion, "score", NAMES)
    assert answer.status == "ok"
    found, wanted = ast.parse(answer.text, mode="eval"), ast.parse(expression, mode="eval")
    assert ast.dump(found) == ast.dump(wanted)
    assert "\n" not in answer.text


@pytest.mark.parametrize(
    "completion", ["", "  \n\n", "```\n```", "# only a comment", "<think>so, d_current, and", "Sure\n◁think▷d_mean"]
)
def test_nothing_left_is_no_answer(completion: str) -> None:
    assert parse_expression(completion, "score", NAMES).status == "no_answer"


@pytest.mark.parametrize(
    "completion",
    [
        " d_current - d_home * (",
        " d_current -",
        " d_current - 0.5 *",
        " np.sqrt(d_current",
        " (d_current - d_home",
        " def f(x): return x",
        " (yield d_current)",
        " await d_current",
        " for x in d_current",
        " d_mean 5 * (d_mean ** 0.5)",
        " " + "(" * 500 + "d_current" + ")" * 500,
        " " + "9" * 5000,
    ],
)
def test_half_an_expression_is_a_syntax_error_with_a_reason(completion: str) -> None:
    answer = parse_expression(completion, "score", NAMES)
    assert (answer.status, answer.text) == ("syntax", "")
    assert answer.message
    assert "\n" not in answer.message


def test_the_comment_behind_an_expression_is_its_thought() -> None:
    answer = parse_expression(" d_current - d_home  # far from home first", "score", NAMES)
    assert answer.thought == "far from home first"


def test_a_line_that_uses_an_argument_wins_over_a_word_before_it() -> None:
    assert parse_expression(" Sure\nscore = d_mean", "score", NAMES).text == "d_mean"


def test_a_warning_of_the_compiler_stays_silent() -> None:
    assert parse_expression(r" d_current if '\d' is 1 else d_home", "score", NAMES).status == "ok"


@given(st.text(max_size=200))
def test_any_text_has_a_status(text: str) -> None:
    answer = parse_expression(text, "score", NAMES)
    assert answer.status in ("ok", "no_answer", "syntax")
    assert (answer.status == "ok") == bool(answer.text)
    assert (answer.status == "ok") != bool(answer.message)


@pytest.mark.filterwarnings("ignore::SyntaxWarning")  # `0[0]` is an answer that can be judged
@given(st.text(alphabet="d_current +-*/()[]{}.,:=#'\"\\`0123np\n", max_size=80))
def test_whatever_is_accepted_compiles_on_one_line(text: str) -> None:
    answer = parse_expression(text, "score", NAMES)
    if answer.status == "ok":
        compile(f"def f():\n    score = {answer.text}\n    return score", "<test>", "exec")


EXPRESSIONS = st.recursive(
    st.sampled_from([*NAMES, "0.5", "1e-3", "np.pi"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "**"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda e: f"np.sqrt({e})"),
        st.tuples(inner, inner).map(lambda t: f"np.where({t[0]} > 0, {t[1]}, 1)"),
    ),
    max_leaves=8,
)


@given(
    EXPRESSIONS, st.sampled_from(["", "\n", "  # why", "\n\nThis rule", "; x = 1", ", which is", " because it", "```"])
)
def test_a_whole_expression_survives_any_tail(expression: str, tail: str) -> None:
    answer = parse_expression(f" {expression}{tail}", "score", NAMES)
    assert (answer.status, answer.text) == ("ok", expression)
