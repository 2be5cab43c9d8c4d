"""Chat templates that begin an answer as families of models do, in ChatML where their own words do not matter."""

import json
import shutil

PAST = "{%% for m in messages %%}<|im_start|>{{ m.role }}\n%s{{ m.content }}<|im_end|>\n{%% endfor %%}"
"""Messages, with what comes before the content of the assistant's."""
TURN = "{%% if add_generation_prompt %%}<|im_start|>assistant\n%s{%% endif %%}"
EMPTY = "<think>\\n\\n</think>\\n\\n"

PLAIN = PAST % "" + TURN % ""
BY_ITSELF = PAST % f"{{% if m.role == 'assistant' and loop.last %}}{{{{ '{EMPTY}' }}}}{{% endif %}}" + TURN % (
    f"{{% if enable_thinking is defined and not enable_thinking %}}{{{{ '{EMPTY}' }}}}{{% endif %}}"
)
"""The model thinks by itself; the template knows a switch, and how an answer without thinking looks (Qwen3)."""
ALWAYS = PAST % "" + TURN % "<think>{{ '\\n' }}"
"""The template begins thinking, and past answers show nothing of it (DeepSeek-R1 and its distillations)."""
UNLESS = PAST % "" + TURN % (
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>{{ '\\n' }}{% endif %}"
)
"""The template begins thinking unless it is switched off, with an empty block of its own form (Nemotron, GLM)."""
WHEN_ASKED = PAST % "{% if m.role == 'assistant' %}</think>{% endif %}" + TURN % (
    "{% if thinking %}<think>{% else %}</think>{% endif %}"
)
"""The template begins thinking where it is asked to (DeepSeek-V3.1)."""
SEED = PAST % "" + TURN % "<seed:think>"
CHANNELS = (
    "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final{% endif %}"
    "<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
"""Every message is in a channel (gpt-oss)."""
TODAY = (
    "{% macro system() %}Today is {{ strftime_now('%d %b %Y') }}.{% endmacro %}"
    "<|im_start|>system\n{{ system() }}<|im_end|>\n" + PLAIN
)
"""Prints the date (Llama 3.2, gpt-oss, Granite)."""


def save_thinking_model(tiny, folder):
    """Save the model of `tiny_llama` with a template that begins thinking, and a special token that ends it.

    The token is the one that pads; a large row in the tied embedding has the model say it often.
    """
    import torch
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny, folder)
    (folder / "chat_template.jinja").write_text(ALWAYS)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        if (folder / name).is_file():
            (folder / name).write_text((folder / name).read_text().replace("<|endoftext|>", "[/THINK]"))
    tensors = load_file(folder / "model.safetensors")
    pad = json.loads((folder / "config.json").read_text())["pad_token_id"]
    with torch.no_grad():
        rows = tensors["model.embed_tokens.weight"]
        rows[pad] = 4 * rows[65]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
