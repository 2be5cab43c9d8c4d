import pytest

from coevo.errors import UserError
from coevo.prompts import Prompts
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
    import dataclasses

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
