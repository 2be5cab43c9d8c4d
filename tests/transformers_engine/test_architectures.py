"""Architectures of many makers, tied and untied, sharded or not: each loads and is proved, or is refused in a line."""

import json

import numpy as np
import pytest
import torch
import transformers

from coevo.errors import UserError
from coevo.records import SeedsUpdate
from coevo.weights.master import Master
from coevo.weights.selection import Selection
from coevo_transformers.decode import Decoder
from tests.asking_kit import ask, complete
from tests.tiny_models import save_tiny

UPDATE = SeedsUpdate(terms=((3, 1e-2), (4, -2e-2)))
IDS = [(7 * i + 3) % 256 for i in range(12)]  # as the engine's own probe asks


def probe(model):
    """Logits as the engine's decoder gives them for a model that transformers loaded by itself."""
    for parameter in model.eval().parameters():
        parameter.data = parameter.data.clone()  # out of the file's mapping, which is aligned in another way
    found = Decoder(model, 0).probe(IDS)
    return {name: values.float().numpy() for name, values in found.items()}


@pytest.mark.parametrize(
    ("kind", "sharded", "tied"),
    [
        ("llama", False, False),
        ("llama", True, True),
        ("mistral", True, False),
        ("gpt_neox", True, False),  # its head is stored as embed_out
        ("gpt_neox", False, True),
        ("gpt2", False, None),
        ("opt", True, None),
        ("qwen2", False, True),
        ("qwen3", True, False),
        ("gemma2", False, None),
        ("phi3", True, None),
        ("olmo2", False, None),
        ("falcon", False, None),
        ("bloom", False, None),
        ("stablelm", True, None),
        ("granite", False, None),
        ("smollm3", False, None),
        ("cohere", False, None),
        ("mpt", False, None),
        ("apertus", True, None),  # stores buffers
        ("gemma3", True, None),  # brings a vision tower along, under other names
        ("qwen3_5", True, False),  # is stored with one, which the text model leaves out
    ],
)
def test_every_tensor_is_proved_and_export_and_replay_give_what_is_served(new_engine, tmp_path, kind, sharded, tied):
    base = save_tiny(tmp_path / "base", kind, sharded=sharded, tied=tied)
    assert (base / "model.safetensors.index.json").exists() == sharded
    engine = new_engine(base, canary=True)
    session = engine._session
    selection = session.weights.selection
    seeing = {name for name, _ in session.decoder.model.named_parameters() if "vision" in name or "multi_modal" in name}
    expected = {id(p): p for n, p in session.decoder.model.named_parameters() if n not in seeing}
    assert session.canary.read_back == len(selection.tensors) == len(expected)
    assert selection.size == sum(p.numel() for p in expected.values())

    before = session.logits()
    engine.apply(UPDATE)
    assert len(complete(engine, [ask("Hi", max_new_tokens=2)])) == 1
    after = session.logits()
    assert not np.array_equal(before["prefill"], after["prefill"])

    engine.export(tmp_path / "out")
    exported = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    found = probe(exported)
    assert all(np.array_equal(after[key], found[key]) for key in ("prefill", "decode"))

    again = Master(Selection.from_json(json.loads(json.dumps(selection.to_json()))), base)
    again.apply(UPDATE.terms)
    assert again.digest() == engine.digest()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "mixtral",
            r"transformers does not load this MixtralForCausalLM tensor by tensor: it makes 4 of 24, such as "
            r"'model.layers.0.mlp.experts.gate_up_proj' of 'model.layers.0.block_sparse_moe.experts.0.w1.weight', ",
        ),
        ("qwen2_moe", r"this Qwen2MoeForCausalLM tensor by tensor: .*'model.layers.0.mlp.experts.0.down_proj.weight'"),
        ("mamba", "MambaForCausalLM does not continue a padded batch"),
        ("recurrent_gemma", "RecurrentGemmaForCausalLM does not continue a padded batch"),
    ],
)
def test_what_cannot_be_served_member_by_member_is_refused_in_one_line(new_engine, tmp_path, kind, said):
    base = save_tiny(tmp_path / "base", kind)
    with pytest.raises(UserError, match=said) as caught:
        new_engine(base)
    assert "\n" not in str(caught.value)
