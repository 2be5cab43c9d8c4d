"""Thinking that the chat template begins, and marks that are special tokens, on real vLLM."""

import chat_templates as templates
import pytest
from asking_kit import ask, complete

from coevo.engines.decoding import Decoding

pytestmark = pytest.mark.vllm


def test_texts_begin_with_the_templates_mark_and_keep_marks_that_are_special_tokens(make_vllm, tiny, tmp_path):
    from transformers import AutoTokenizer

    model = templates.save_thinking_model(tiny, tmp_path / "thinks")
    engine = make_vllm(model, canary=False)
    told = engine.describe()
    assert told["thinking"].startswith("begun by the chat template with <think>")
    assert len(told["chat_template"]) == 16
    asked = [ask("Hi", seed=seed, max_new_tokens=200, temperature=2.0) for seed in range(8)]
    texts = Decoding(AutoTokenizer.from_pretrained(model))
    answers = complete(engine, asked)
    for free in answers:
        # Bytes that make up no character are written once or thrice.
        whole = "<think>\n" + texts.decode(free.completion_ids)
        assert free.text.replace("\ufffd", "") == whole.replace("\ufffd", "")
    assert any("[/THINK]" in free.text for free in answers)
    (led,) = complete(engine, [ask("Hi", prefill="score =")])
    assert texts.decode(led.prompt_ids).endswith("<think>\n\n</think>\n\nscore =")
    assert not led.text.startswith("<think>")
