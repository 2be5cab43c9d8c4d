"""The demo model: 135 million real weights. Skipped where it was not pulled."""

import json

import numpy as np
import pytest

from coevo.errors import UserError
from coevo.models import catalogue as models
from coevo.records import Perturbation
from tests.asking_kit import ask, complete

pytestmark = pytest.mark.model

DIGEST = "090e727e969eb7e44e6efcc821b2034d9b8690f36878c378f2189cc0cc6a1deb"


@pytest.fixture(scope="module")
def folder():
    try:
        return models.resolve("smollm2-135m")
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def engine(folder):
    from coevo_transformers.engine import TransformersEngine

    engine = TransformersEngine("smollm2-135m")
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def tokenizer(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_the_base_digest_is_fixed(engine, folder):
    """θ is portable only if everybody starts at the same weights."""
    assert engine.digest() == DIGEST
    assert json.loads((folder / models.NOTE).read_text())["weights_digest"] == DIGEST
    assert models.weights_of(folder)[0] == DIGEST


def test_the_whole_model_is_selected_and_proved(engine):
    selection = engine._session.weights.selection
    assert selection.size == 134_515_008
    assert selection.left_out == ()
    assert engine._session.canary.read_back == len(selection.tensors) == 272


def test_fifty_members_then_the_centre_to_the_bit(engine):
    complete(engine, [])
    digest, logits = engine.served_digest(), engine._session.logits()
    for seed in range(50):
        complete(engine, [], Perturbation(seed, 2e-3))
    assert engine.served_digest() != digest
    complete(engine, [])
    assert engine.served_digest() == digest
    assert all(np.array_equal(values, engine._session.logits()[key]) for key, values in logits.items())


def test_an_exported_model_says_what_the_engine_says(engine, folder, tmp_path):
    """Greedy ids at the centre, in the same format, through transformers' own loading and generate."""
    import torch
    from transformers import AutoModelForCausalLM

    engine.export(tmp_path / "out")
    stored = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja"} <= stored
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=engine._session.dtype)
    request = ask("Name the capital of France.", temperature=0.0, max_new_tokens=12)
    answer = complete(engine, [request])[0]
    ids = torch.tensor([answer.prompt_ids])
    with torch.inference_mode():
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False)
    assert out[0, ids.shape[1] :].tolist() == list(answer.completion_ids)
    assert "Paris" in answer.text
    assert models.weights_of(tmp_path / "out")[0] == DIGEST


def test_the_tokenizer_round_trips_and_splits_digits_as_in_training(tokenizer):
    for text in ("def f(x):\n    return x[1:23]\n", "Zürich → 東京 🙂", "a   12  345", "\t\tif x:\n\n\n"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert tokenizer.tokenize("   12") == ["ĠĠĠ", "1", "2"]


def test_chatml_and_its_ends_survive_the_conversion(tokenizer, engine):
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer(text)["input_ids"][0] == tokenizer.convert_tokens_to_ids("<|im_start|>") == 1
    assert engine._session.completer._eos.tolist() == [2]
    assert engine._session.completer.limits.context_tokens == 8192
    answer = complete(engine, [ask("Say only: yes", temperature=0.0, max_new_tokens=40)])[0]
    assert (answer.finish_reason, answer.completion_ids[-1]) == ("stop", 2)
