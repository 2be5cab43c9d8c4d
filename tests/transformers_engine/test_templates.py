"""Chat templates that real folders have: which of them load and answer, and in what words the others are refused."""

import dataclasses
import json

import pytest

from coevo.errors import UserError
from coevo.tools.serve.template import template_of
from coevo_transformers.engine import TransformersEngine
from tests.asking_kit import ask, complete
from tests.tiny_llama import CHAT_TEMPLATE
from tests.tiny_models import save_tiny

NO_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    + CHAT_TEMPLATE
)
ALTERNATING = (
    "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant') }}{% endif %}{% endfor %}" + CHAT_TEMPLATE
)
GENERATION = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% generation %}{{ message['content'] + '<|im_end|>\n' }}{% endgeneration %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
THINKING = CHAT_TEMPLATE.replace("'<|im_start|>assistant\n'", "'<|im_start|>assistant\n<think>\n'")
NAMED = {"default": CHAT_TEMPLATE, "tool_use": "{{ tools }}"}


def with_roles(*roles):
    return dataclasses.replace(ask("Hi", max_new_tokens=2), messages=tuple({"role": r, "content": "x"} for r in roles))


def prompt_of(engine, request):
    (completion,) = complete(engine, [request])
    return engine._session._tokenizer.decode(completion.prompt_ids)


@pytest.fixture
def engine_with(new_engine, tmp_path):
    return lambda template: new_engine(save_tiny(tmp_path / "model", "llama", template=template))


@pytest.mark.parametrize("template", [NO_SYSTEM, ALTERNATING, GENERATION, NAMED, THINKING])
def test_a_model_with_an_unusual_template_loads_and_answers_a_user(engine_with, template):
    assert prompt_of(engine_with(template), ask("Hi", max_new_tokens=2)).startswith("<|im_start|>user\nHi<|im_end|>")


def test_a_template_in_a_file_of_its_own_is_used(engine_with, tmp_path):
    save_tiny(tmp_path / "model", "llama", template=GENERATION)
    assert (tmp_path / "model" / "chat_template.jinja").is_file()
    assert "chat_template" not in (tmp_path / "model" / "tokenizer_config.json").read_text()
    assert prompt_of(engine_with(GENERATION), ask("Hi")).endswith("<|im_start|>assistant\n")


def test_a_template_in_the_tokenizer_s_configuration_is_used(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "model", "llama")
    (folder / "chat_template.jinja").unlink()
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": GENERATION}))
    assert prompt_of(new_engine(folder), ask("Hi")).endswith("<|im_start|>assistant\n")


def test_a_model_without_a_template_is_refused_when_it_is_loaded(engine_with):
    with pytest.raises(UserError, match="has no chat template; expected an instruct model"):
        engine_with(None)


@pytest.mark.parametrize(
    ("template", "roles", "said"),
    [
        (NO_SYSTEM, ("system", "user"), "refuses the messages: System role not supported"),
        (ALTERNATING, ("user", "user"), "refuses the messages: roles must alternate user/assistant"),
    ],
)
def test_messages_that_a_template_refuses_are_refused_in_one_line(engine_with, template, roles, said):
    engine = engine_with(template)
    with pytest.raises(UserError, match=said) as caught:
        complete(engine, [with_roles(*roles)])
    assert "\n" not in str(caught.value)


def test_several_templates_without_a_default_are_refused_in_one_line(engine_with):
    with pytest.raises(UserError, match=r"several chat templates \(tool_use\) and none is named 'default'") as caught:
        engine_with({"tool_use": "{{ tools }}"})
    assert "\n" not in str(caught.value)


def said_of(folder):
    """What is said of a folder's template where prompts are counted, for which no weights are there."""
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError) as counting:
        TransformersEngine.token_counter(str(folder), {})
    with pytest.raises(UserError) as loading:
        TransformersEngine(str(folder))
    assert str(loading.value) == str(counting.value)
    assert "\n" not in str(loading.value)
    return str(loading.value)


@pytest.mark.parametrize("template", ["{{ 'Hello' }}", "", "{{ messages[0].text }}{{ messages | length }}"])
def test_a_template_that_leaves_out_what_messages_say_is_refused_before_the_weights_are_read(tmp_path, template):
    folder = save_tiny(tmp_path / "model", "llama", template=template or "{{ '' }}")
    said = said_of(folder)
    assert said.startswith(f"the chat template of '{folder}' writes the same whatever the user's message says: ")
    assert said.endswith(f"put one that writes messages into '{folder}/chat_template.jinja'")


@pytest.mark.parametrize(
    ("template", "line", "what"),
    [
        ("a\nb\n{% if %}", 3, "Expected an expression, got 'end of statement block'"),
        ("{% for m in messages %}\n{{ m.content }}", 2, "Unexpected end of template"),
        ("{{ messages[0]['content'] }}\n{{ messages[0].parts.text }}", 2, "'dict object' has no attribute 'parts'"),
        ("{{ strftime_now('%d') }}\n{{ messages[0]['content'] }}\n{{ 1 / 0 }}", 3, "division by zero"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", 1, "Range too big"),
    ],
)
@pytest.mark.parametrize("in_file", [True, False])
def test_a_template_that_fails_is_told_with_file_and_line_before_the_weights_are_read(
    tmp_path, template, line, what, in_file
):
    folder = save_tiny(tmp_path / "model", "llama", template=template)
    file = "chat_template.jinja"
    if not in_file:
        (folder / file).unlink()
        file = "tokenizer_config.json"
        kept = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**kept, "chat_template": template}))
    assert said_of(folder).startswith(f"the chat template in '{folder}/{file}' fails at line {line}: {what}")


def test_a_template_that_takes_no_user_s_message_is_refused_before_the_weights_are_read(tmp_path):
    folder = save_tiny(tmp_path / "model", "llama", template="{{ raise_exception('nothing will do') }}")
    assert said_of(folder) == f"the chat template of '{folder}' refuses the messages: nothing will do"


@pytest.mark.parametrize(
    "template", [3, True, {"default": 3}, [3], [{"name": "default"}], [{"name": "default", "template": 1}]]
)
def test_a_template_that_is_no_text_is_refused_with_its_file(tmp_path, template):
    folder = save_tiny(tmp_path / "model", "llama")
    (folder / "chat_template.jinja").unlink()
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))
    assert f"'{config}'" in said_of(folder)
    with pytest.raises(UserError, match="has no chat template"):
        template_of(folder)


def test_a_template_that_wants_a_system_message_first_loads(engine_with):
    first = "{% if messages[0]['role'] != 'system' %}{{ raise_exception('no system message') }}{% endif %}"
    assert prompt_of(engine_with(first + CHAT_TEMPLATE), with_roles("system", "user")).startswith("<|im_start|>system")
