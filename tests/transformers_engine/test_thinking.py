"""Templates that begin an answer with thinking: noticed at start, closed before a prefill, told apart in the text."""

import dataclasses
import datetime

import chat_templates as templates
import pytest
from transformers import AutoTokenizer

from coevo.engines.decoding import Decoding
from coevo.engines.prompts import Prompts, dated
from coevo.engines.thinking import said
from coevo.errors import UserError
from tests.asking_kit import ask, complete
from tests.tiny_llama import byte_tokenizer

ASSISTANT = "<|im_start|>assistant\n"


def prompts_of(template, *special, date=None, **options):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    if special:
        tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    return tokenizer, Prompts(tokenizer, options, date)


def ends(template, request, **options):
    """The prompt from the assistant's turn on."""
    tokenizer, prompts = prompts_of(template, **options)
    text = tokenizer.decode(prompts(request).ids)
    return text[text.rindex("assistant") :].removeprefix("assistant")


@pytest.mark.parametrize(
    ("template", "options", "before"),
    [
        (templates.PLAIN, {}, "\n"),
        (templates.BY_ITSELF, {}, "\n<think>\n\n</think>\n\n"),
        (templates.BY_ITSELF, {"enable_thinking": False}, "\n<think>\n\n</think>\n\n"),
        (templates.ALWAYS, {}, "\n<think>\n\n</think>\n\n"),
        (templates.UNLESS, {}, "\n<think></think>"),
        (templates.UNLESS, {"enable_thinking": False}, "\n<think></think>"),
        (templates.UNLESS, {"enable_thinking": True}, "\n<think>\n\n</think>\n\n"),
        (templates.WHEN_ASKED, {}, "\n</think>"),
        (templates.WHEN_ASKED, {"thinking": True}, "\n<think></think>"),
        (templates.SEED, {}, "\n<seed:think></seed:think>"),
        (templates.CHANNELS, {}, "<|channel|>final<|message|>"),
    ],
)
def test_a_prefill_comes_where_the_template_lets_an_answer_begin(template, options, before):
    assert ends(template, ask("Hi", prefill="score ="), **options) == f"{before}score ="


@pytest.mark.parametrize("template", [templates.PLAIN, templates.BY_ITSELF, templates.CHANNELS])
def test_a_prefill_equals_transformers_own_continuation(template):
    tokenizer, prompts = prompts_of(template)
    request = ask("Hi", prefill="score =")
    messages = [*request.messages, {"role": "assistant", "content": request.prefill}]
    theirs = tokenizer.apply_chat_template(messages, tokenize=True, continue_final_message=True)["input_ids"]
    assert list(prompts(request).ids) == list(theirs)


def test_a_prefill_that_thinks_itself_is_not_closed():
    asked = ask("Hi", prefill="<think>\nFirst")
    assert ends(templates.ALWAYS, asked) == ends(templates.BY_ITSELF, asked) == "\n<think>\nFirst"


def test_a_template_that_refuses_the_assistants_turn_still_gets_its_thinking_closed():
    strict = "{% if messages[-1].role != 'user' %}{{ raise_exception('user last') }}{% endif %}" + templates.ALWAYS
    assert ends(strict, ask("Hi", prefill="a")) == "\n<think>\n\n</think>\n\na"


@pytest.mark.parametrize("question", ["What is <think>?", "Is </think> a tag? <think>"])
def test_a_mark_in_a_question_is_no_thinking(question):
    assert ends(templates.PLAIN, ask(question, prefill="a")) == "\na"
    _, prompts = prompts_of(templates.PLAIN)
    assert prompts(ask(question)).opened == ""


def test_without_a_prefill_the_model_may_think_and_the_completion_says_so():
    for template, mark in ((templates.ALWAYS, "<think>\n"), (templates.SEED, "<seed:think>"), (templates.PLAIN, "")):
        _, prompts = prompts_of(template)
        assert prompts(ask("Hi")).opened == mark
        assert prompts(ask("Hi", prefill="a")).opened == ""


def test_the_start_line_tells_of_thinking_that_the_template_begins():
    told = {
        name: prompts_of(getattr(templates, name))[1].describe() for name in ("PLAIN", "ALWAYS", "SEED", "CHANNELS")
    }
    assert "thinking" not in told["PLAIN"]
    assert "thinking" not in told["CHANNELS"]
    assert told["ALWAYS"]["thinking"] == "begun by the chat template with <think>, closed before a prefill"
    assert "<seed:think>" in told["SEED"]["thinking"]
    assert "thinking" not in prompts_of(templates.UNLESS, enable_thinking=False)[1].describe()


def test_the_chat_template_is_told_by_its_digest():
    one, other = (prompts_of(template)[1].describe()["chat_template"] for template in (templates.PLAIN, templates.SEED))
    assert len(one) == len(other) == 16
    assert one != other
    assert one == prompts_of(templates.PLAIN, enable_thinking=True)[1].describe()["chat_template"]
    first, later = (prompts_of(templates.TODAY, date=datetime.date(2026, 1, day))[1] for day in (1, 2))
    assert first.describe()["chat_template"] == later.describe()["chat_template"]


def test_a_template_that_prints_the_date_prints_the_one_that_it_is_given():
    tokenizer, prompts = prompts_of(templates.TODAY, date=datetime.date(2026, 1, 5))
    assert "Today is 05 Jan 2026." in tokenizer.decode(prompts(ask("Hi")).ids)
    assert "Today is 05 Jan 2026." in tokenizer.decode(prompts(ask("Hi", prefill="a")).ids)
    assert prompts.describe()["date"] == "2026-01-05"


def test_a_template_without_the_date_has_none():
    tokenizer, prompts = prompts_of(templates.PLAIN, date=datetime.date(2026, 1, 5))
    assert (prompts.date, "date" in prompts.describe()) == (None, False)
    assert prompts(ask("Hi")).ids == Prompts(tokenizer, {})(ask("Hi")).ids


@pytest.mark.parametrize(
    "form", ["%d %b %Y", "%Y-%m-%d", "%A, %B %-d, %y", "%a %x %X %c", "%H:%M:%S %p", "100 %% %j", "%F %T %e"]
)
def test_a_pinned_date_is_written_as_strftime_writes_it(form):
    tokenizer = byte_tokenizer()
    day = datetime.datetime(2026, 3, 7)
    template = dated(f"{{% if strftime_now is defined %}}{{{{ strftime_now({form!r}) }}}}{{% endif %}}", day.date())
    messages = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False)
    assert text == day.strftime(form)


def test_marks_that_are_special_tokens_stay_in_the_text():
    tokenizer, _ = prompts_of(templates.PLAIN, "[THINK]", "[/THINK]", "[TOOL]")
    text = "[THINK]a draft[/THINK]the [TOOL]answer"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a draftthe answer"
    texts = Decoding(tokenizer)
    assert texts.keeps_marks
    assert texts.decode(ids) == texts.cleaned(text, ids) == "[THINK]a draft[/THINK]the answer"
    assert said(texts.decode(ids)).answer == "the answer"


def test_channels_that_are_special_tokens_stay_in_the_text():
    tokenizer, _ = prompts_of(templates.CHANNELS, "<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|return|>")
    text = (
        "<|channel|>analysis<|message|>a draft<|end|><|start|>assistant<|channel|>final<|message|>the answer<|return|>"
    )
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert said(Decoding(tokenizer).decode(ids)).answer == "the answer"


def test_without_such_marks_a_tokenizer_decodes_as_it_always_did():
    tokenizer = byte_tokenizer()
    texts = Decoding(tokenizer)
    ids = tokenizer("a<|im_end|>b<think>", add_special_tokens=False)["input_ids"]
    assert not texts.keeps_marks
    assert texts.decode(ids) == tokenizer.decode(ids, skip_special_tokens=True) == "ab<think>"
    assert texts.cleaned("ab<think>", ids) == "ab<think>"


def test_several_templates_without_a_default_are_refused_in_one_line():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = {"rag": templates.PLAIN, "tool_use": templates.PLAIN}
    with pytest.raises(UserError, match=r"several chat templates \(rag, tool_use\) and none is named 'default'"):
        Prompts(tokenizer, {})
    tokenizer.chat_template = {"default": templates.SEED, "tool_use": templates.PLAIN}
    assert Prompts(tokenizer, {})(dataclasses.replace(ask("Hi"))).opened == "<seed:think>"


def test_an_engine_says_that_the_template_began_thinking_and_decodes_its_marks(tiny, tmp_path, new_engine):
    model = templates.save_thinking_model(tiny, tmp_path / "thinks")
    engine = new_engine(model)
    assert engine.describe()["thinking"].startswith("begun by the chat template with <think>")
    free, led = complete(engine, [ask("Hi", max_new_tokens=200, temperature=2.0), ask("Hi", prefill="score =")])
    assert free.text.startswith("<think>\n")
    texts = Decoding(AutoTokenizer.from_pretrained(model))
    assert texts.keeps_marks
    assert free.text.removeprefix("<think>\n") == texts.decode(free.completion_ids)
    assert "[/THINK]" in free.text
    assert texts.decode(led.prompt_ids).endswith("<think>\n\n</think>\n\nscore =")
    assert not led.text.startswith("<think>")
