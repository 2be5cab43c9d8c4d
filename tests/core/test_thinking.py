"""What a model says while it thinks is no answer, however it is marked."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coevo.engines.thinking import begins, closed, mark_tokens, opened, said

FINAL = "<|start|>assistant<|channel|>final<|message|>"
WAYS = {
    "<think>": "</think>",
    "<THINK>": "</THINK>",
    "<think >": "</think >",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<reflection>": "</reflection>",
    "<scratchpad>": "</scratchpad>",
    "<Analysis>": "</Analysis>",
    "<inner_monologue>": "</inner_monologue>",
    "<seed:think>": "</seed:think>",
    "<longcat_think>": "</longcat_think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|channel>thought\n": "<channel|>",
    "<|channel|>analysis<|message|>": f"<|end|>{FINAL}",
    "<|channel|>analysis <|constrain|>json<|message|>": f"<|end|>{FINAL}",
}
every_way = pytest.mark.parametrize(("opening", "closing"), WAYS.items())


@every_way
def test_thinking_is_taken_out_however_it_is_marked(opening: str, closing: str) -> None:
    assert said(f"{opening}a draft{closing}the answer") == ("the answer", False)


@pytest.mark.parametrize("text", ['\\"' * 4_000_000, "\\'" * 4_000_000], ids=["double", "single"])
def test_a_text_of_escaped_quotes_is_read_once(text: str) -> None:
    # Were a string looked for at each of them, 300 characters far, this would take minutes.
    assert said(f"<think>{text}</think>the answer") == ("the answer", False)
    assert said(text) == (text, False)


def test_a_mark_between_escaped_quotes_is_text() -> None:
    text = r'{"code": "' + "x" * 400 + r'(\"</think>\")"}'
    assert said(text) == (text, False)


@every_way
def test_thinking_that_never_ends_takes_the_rest_with_it(opening: str, closing: str) -> None:
    assert said(f"{opening}a draft, and it goes on") == ("", True)


@every_way
def test_a_closing_mark_without_an_opening_one_ends_what_the_template_began(opening: str, closing: str) -> None:
    assert said(f"a draft{closing}the answer") == ("the answer", False)


@every_way
def test_nothing_after_the_closing_mark_is_no_answer(opening: str, closing: str) -> None:
    assert said(f"{opening}a draft{closing}") == ("", False)


@every_way
def test_blocks_may_be_repeated_and_nested(opening: str, closing: str) -> None:
    assert said(f"{opening}a{closing}{opening}b{closing}the answer").answer == "the answer"
    assert said(f"{opening}a{opening}b{closing}c{closing}the answer").answer == "the answer"


@every_way
def test_an_open_block_at_the_end_of_a_prompt_is_seen_and_closed(opening: str, closing: str) -> None:
    for gap in ("", "\n"):
        prompt = f"user: what is {opening}?{closing}\nassistant:{opening}{gap}"
        assert opened(prompt) == f"{opening}{gap}"
        assert begins(opening)
        done = closed(prompt)
        assert done.startswith(prompt)
        assert opened(done) == ""
        assert said(f"{opening}{gap}{done.removeprefix(prompt)}the answer").answer.strip() == "the answer"
        assert closed(done) == done


def test_an_empty_block_keeps_the_form_of_the_mark_that_began_it() -> None:
    assert closed("<think>\n") == "<think>\n\n</think>\n\n"
    assert closed("<seed:think>") == "<seed:think></seed:think>"
    assert closed("[THINK]") == "[THINK][/THINK]"


def test_only_the_final_channel_is_the_answer() -> None:
    text = (
        "<|channel|>analysis<|message|>draft one<|end|><|start|>assistant<|channel|>commentary<|message|>a plan<|end|>"
        "<|start|>assistant<|channel|>final<|message|>the answer"
    )
    assert said(text).answer == "the answer"
    assert said(text.partition("<|channel|>final")[0] + "<|channel|>analysis<|message|>more") == ("", True)


def test_channels_whose_marks_a_server_left_out_are_told_by_the_words_between_them() -> None:
    assert said("analysisWe need a line.assistantfinalthe answer").answer == "the answer"
    assert said("We need a line.assistantfinalthe answer") == ("the answer", False)
    assert said("analysisOne.assistantanalysisTwo.assistantfinalthe answer").answer == "the answer"
    assert said("analysis of the answer").answer == "analysis of the answer"
    for program in ("x.assistantfinal = 3", "assistantfinal = 3", "def f(is_assistantfinal): pass", "'assistantfinal'"):
        assert said(program) == (program, False)


@pytest.mark.parametrize("word", ["thinking", "think", "Thoughts", "reasoning ", "scratchpad"])
def test_a_block_of_code_that_is_called_thinking_is_no_answer(word: str) -> None:
    answer = "```python\ndef f(x):\n    return x\n```"
    draft = f"```{word}\ndef f(x):\n    return 'a draft'\n```\n"
    assert said(draft + answer) == ("\n" + answer, False)
    assert said(draft.removesuffix("```\n") + "and on").unfinished
    assert said(answer) == (answer, False)
    assert closed(f"```{word}\n") == f"```{word}\n\n```\n\n"


@pytest.mark.parametrize(
    "end", ["<|return|>", "<|end|>", "<|im_end|>", "<|eot_id|>\n", "</s>", "<｜end▁of▁sentence｜>", "<|end|><|return|>"]
)
def test_the_mark_that_ends_a_turn_is_no_part_of_the_answer(end: str) -> None:
    answer = "```python\ndef f(x):\n    return x\n```"
    assert said(answer + end) == (answer, False)
    assert said(f"<|channel|>analysis<|message|>a draft<|end|>{FINAL}{answer}{end}").answer == answer
    assert said(f"x = '{end.strip()}'").answer == f"x = '{end.strip()}'"


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("<|begin_of_solution|>", "<|end_of_solution|>"),
        ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        ("<answer>", "</answer>"),
        ("<Solution>\n", "\n</Solution>"),
    ],
)
def test_marks_around_the_answer_are_no_part_of_it(opening: str, closing: str) -> None:
    for before in ("", "<think>a draft</think>\n", "<|begin_of_thought|>a draft<|end_of_thought|>\n\n"):
        assert said(f"{before}{opening}the answer{closing}") == ("the answer", False)
        assert said(f"{before}{opening}the answer") == ("the answer", False)


def test_what_begins_the_answer_ends_thinking_that_nobody_ended() -> None:
    assert said("<|begin_of_thought|>a draft<|begin_of_solution|>the answer") == ("the answer", False)
    assert said("a draft<|START_RESPONSE|>the answer") == ("the answer", False)


def test_a_mark_that_the_model_mentions_while_it_thinks_changes_nothing() -> None:
    assert said("<think>is <think> or <reasoning>x</reasoning> wanted?</think>the answer") == ("the answer", False)
    assert said("<thinking>a<reflection>b</reflection> a draft that is cut off") == ("", True)


@pytest.mark.parametrize(
    "program",
    [
        'def f(x):\n    return "<think>" in x',
        "def f(x):\n    # </think> ends it\n    return x",
        "def f(x):\n    return x.split('</think>')[-1]  # [/THINK] too",
        'def f(x):\n    """Split at <think> marks."""\n    return x',
        'def f(x):\n    """Split.\n\n    At the <think> marks and "</think>".\n    """\n    return x',
        "def f(x):\n    return x[THINK]",
        "def f(x):\n    return f'<|channel|>final<|message|>{x}'",
        "def f(think, x):\n    return x < think",
    ],
)
def test_a_mark_in_a_string_or_a_comment_of_a_program_is_text(program: str) -> None:
    assert said(program) == (program, False)
    assert said(f"<think>{program}\nor so</think>{program}") == (program, False)


@pytest.mark.parametrize(
    "draft",
    ["I don't know, it's hard.\n", 'a "word', "option #2\n", 'def f():\n    """Broken off\n', "```python\nx = 'a\n"],
)
def test_quotes_and_hashes_in_prose_hide_no_mark(draft: str) -> None:
    assert said(f'{draft}</think>\n"""the answer"""').answer.strip() == '"""the answer"""'
    assert said(f"<think>{draft}</think>the answer").answer == "the answer"


PIECES = st.sampled_from(
    [*WAYS, *WAYS.values(), "a", " ", "\n", "'", '"', '"""', "#", "# ", "analysis", "\\", "<", "|>"]
)


@given(st.lists(PIECES, max_size=12).map("".join))
@example("")
def test_what_is_left_is_part_of_the_text_and_ordinary_text_is_left_whole(text: str) -> None:
    answer, _ = said(text)
    rest = iter(text)
    assert all(letter in rest for letter in answer)
    assert said(text.replace("<", "").replace("[", "").replace("◁", "").replace("analysis", ""))[1] is False


def test_the_special_tokens_that_marks_are_made_of_are_known() -> None:
    assert mark_tokens(["<s>", "[THINK]", "[/THINK]", "[INST]"]) == {"[THINK]", "[/THINK]"}
    harmony = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>"]
    assert mark_tokens([*harmony, "<|return|>"]) == set(harmony)
    assert mark_tokens(["<|user|>", "<|end|>", "<|assistant|>"]) == set()  # Phi ends its turns so
    assert mark_tokens(["<|channel>", "<channel|>", "<turn|>"]) == {"<|channel>", "<channel|>"}
