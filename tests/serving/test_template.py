"""A system message baked into a chat template says what the same message in a request says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_llama import CHAT_TEMPLATE, byte_tokenizer

from coevo.endpoint.chat import with_system as in_messages
from coevo.errors import UserError
from coevo.tools.serve.template import template_of, with_system

pytest.importorskip("transformers")
USER = {"role": "user", "content": "hello"}
TOKENIZER = byte_tokenizer()
ANYTHING = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def rendered(template, messages):
    return TOKENIZER.apply_chat_template(
        messages, chat_template=template, tokenize=False, add_generation_prompt=True
    )  # fmt: skip


@given(system=ANYTHING, own=st.none() | ANYTHING)
def test_any_text_arrives_as_it_is(system, own):
    messages = [USER] if own is None else [{"role": "system", "content": own}, USER]
    assert rendered(with_system(CHAT_TEMPLATE, system), messages) == rendered(
        CHAT_TEMPLATE, in_messages(messages, system)
    )


@pytest.mark.parametrize("system", ["{% raw %}", "{{ 1 + 1 }}", "'\"\\", "a\n{# b #}\n", "😀 \u2028", "{%- endif -%}"])
def test_what_looks_like_a_template_is_text(system):
    assert f"system\n{system}<|im_end|>" in rendered(with_system(CHAT_TEMPLATE, system), [USER])


def test_without_a_message_the_template_is_the_models_own():
    assert with_system(CHAT_TEMPLATE, "") == CHAT_TEMPLATE


def test_the_template_is_found_wherever_a_folder_keeps_it(tmp_path):
    config = tmp_path / "tokenizer_config.json"
    with pytest.raises(UserError, match="has no chat template; expected an instruct model"):
        template_of(tmp_path)
    config.write_text(
        json.dumps({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})
    )
    assert template_of(tmp_path) == "D"
    config.write_text(json.dumps({"chat_template": "S"}))
    assert template_of(tmp_path) == "S"
    (tmp_path / "chat_template.jinja").write_text("J")
    assert template_of(tmp_path) == "J"
