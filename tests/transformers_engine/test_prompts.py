import dataclasses
import inspect
import logging

import pytest
from transformers import PreTrainedTokenizerBase
from transformers.processing_utils import ProcessorMixin
from transformers.utils.chat_template_utils import render_jinja_template

from coevo.engines.prompts import TEMPLATE_CALL, Prompts
from coevo.engines.vocabulary import tokenizer_of
from coevo.errors import UserError
from coevo_transformers.engine import TransformersEngine
from tests.asking_kit import ask
from tests.tiny_llama import byte_tokenizer


@pytest.fixture
def tokenizer():
    return byte_tokenizer()


def shown(tokenizer, request, **options):
    return tokenizer.decode(Prompts(tokenizer, options)(request).ids)


def test_the_prefill_continues_the_assistants_turn(tokenizer):
    text = shown(tokenizer, ask("Hi", prefill="score ="))
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nscore ="


def test_a_prefill_equals_transformers_own_continuation(tokenizer):
    request = ask("Hi", prefill="def f():\n    return")
    messages = [*request.messages, {"role": "assistant", "content": request.prefill}]
    theirs = tokenizer.apply_chat_template(messages, tokenize=True, continue_final_message=True)["input_ids"]
    assert list(Prompts(tokenizer, {})(request).ids) == list(theirs)


def test_whitespace_at_the_end_of_a_prefill_is_left_out_and_said_once(tokenizer, caplog):
    prompts = Prompts(tokenizer, {})
    prompt = prompts(ask("Hi", prefill="def f():\n    "))
    assert prompt.trimmed == "\n    "
    assert tokenizer.decode(prompt.ids).endswith("def f():")
    prompts(ask("Hi", prefill="x "))
    assert len([r for r in caplog.records if "whitespace" in r.message]) == 1


def test_chat_options_of_a_request_win_over_the_engines(tokenizer):
    tokenizer.chat_template = "{{ mood }}:{{ messages[0]['content'] }}:{{ extra }}"
    assert shown(tokenizer, ask("Hi"), mood="calm", extra=1) == "calm:Hi:1"
    asked = dataclasses.replace(ask("Hi"), chat_options={"mood": "loud"})
    assert shown(tokenizer, asked, mood="calm", extra=1) == "loud:Hi:1"


def test_a_template_that_refuses_is_one_line_for_the_user(tokenizer):
    tokenizer.chat_template = "{{ raise_exception('system role not supported') }}"
    with pytest.raises(UserError, match="refuses the messages: system role not supported"):
        Prompts(tokenizer, {})(ask("Hi"))


def test_a_tokenizer_without_chat_template_is_refused(tokenizer):
    tokenizer.chat_template = None
    with pytest.raises(UserError, match="no chat template; expected an instruct model"):
        Prompts(tokenizer, {})


@pytest.mark.parametrize("options", [{}, {"chat_options": {"mood": "calm and long"}}, {"enable_thinking": True}])
def test_prompts_are_counted_without_the_weights_as_with_them(tiny, new_engine, options):
    request = ask("Hi", prefill="score =")
    count = TransformersEngine.token_counter(str(tiny), options)
    assert count is not None
    assert count(request) == new_engine(**options).count_tokens(request)


def test_tokens_of_a_model_that_is_not_on_disk_are_left_to_the_engine():
    assert TransformersEngine.token_counter("nobody/nothing", {}) is None


def test_a_prompt_beyond_what_the_tokenizer_is_made_for_is_no_line_on_the_screen(tiny, caplog):
    tokenizer = tokenizer_of(tiny)
    tokenizer.model_max_length = 4
    library = logging.getLogger(PreTrainedTokenizerBase.__module__)
    library.addHandler(caplog.handler)
    try:
        tokenizer("a long prompt")
        assert caplog.records == []
        tokenizer.deprecation_warnings.clear()  # as the library has it by itself
        tokenizer("a long prompt")
        assert "sequence length is longer" in caplog.text
    finally:
        library.removeHandler(caplog.handler)


BOMB = "{% for i in range(20000) %}{% for j in range(10000) %}x{% endfor %}{% endfor %}"


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "return_dict", "max_length", "messages", "conversation"])
def test_a_request_cannot_say_what_is_made_of_the_template(tokenizer, name):
    request = dataclasses.replace(ask("Hi"), chat_options={name: BOMB})
    with pytest.raises(UserError, match=f"the chat option '{name}' of a request is no option of a template"):
        Prompts(tokenizer, {})(request)


def test_a_task_may_give_what_the_template_reads(tokenizer):
    tokenizer.chat_template = (
        "{{ messages[0].content }}:{{ (tools or [{}])[0].name }}:{{ (documents or [{}])[0].text }}"
    )
    options = {"tools": [{"name": "search"}], "documents": [{"title": "a", "text": "b"}]}
    assert shown(tokenizer, dataclasses.replace(ask("Hi"), chat_options=options)) == "Hi:search:b"


def test_every_parameter_of_transformers_own_call_is_known():
    calls = (PreTrainedTokenizerBase.apply_chat_template, ProcessorMixin.apply_chat_template, render_jinja_template)
    for call in calls:
        named = {each.name for each in inspect.signature(call).parameters.values() if each.kind is not each.VAR_KEYWORD}
        assert named <= TEMPLATE_CALL


def test_a_prompt_without_measure_is_not_tokenised(tokenizer, monkeypatch):
    monkeypatch.setattr("coevo.engines.prompts.LONGEST_PROMPT", 1000)
    tokenizer.chat_template = "{% for i in range(times) %}x{% endfor %}{{ messages[-1].content }}"
    prompts = Prompts(tokenizer, {"times": 998})
    assert len(prompts(ask("Hi")).ids) == 1000
    with pytest.raises(UserError, match="the prompt has 1,001 characters; at most 1,000 are rendered"):
        prompts(dataclasses.replace(ask("Hi"), chat_options={"times": 999}))
