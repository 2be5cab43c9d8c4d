"""Names and values of a checkpoint that are not the modules': found by transformers' own rules, proved by value."""

import json

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from coevo.errors import UserError
from coevo.weights.architecture import tensors_of
from coevo.weights.selection import select
from coevo_transformers import loading
from tests.asking_kit import ask, complete
from tests.tiny_models import save_tiny

FILE = "model.safetensors"


def rewrite(folder, change):
    """Save the checkpoint again with other tensors: `change` takes and gives them by name."""
    tensors = safetensors.torch.load_file(folder / FILE)
    safetensors.torch.save_file(change(tensors), folder / FILE, metadata={"format": "pt"})
    return folder


def configure(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))


def names_of(engine):
    return {spec.name for spec in engine._session.weights.selection.tensors}


def test_a_head_under_its_stored_name_is_selected_by_it(new_engine, tmp_path):
    engine = new_engine(save_tiny(tmp_path / "m", "gpt_neox", tied=False))
    assert "embed_out.weight" in names_of(engine)
    assert "lm_head.weight" not in names_of(engine)


def test_a_checkpoint_of_the_base_model_is_loaded_under_its_own_names(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "gpt2")
    rewrite(folder, lambda tensors: {name.removeprefix("transformer."): t for name, t in tensors.items()})
    engine = new_engine(folder, canary=True)
    assert "wte.weight" in names_of(engine)
    assert complete(engine, [ask("Hi", max_new_tokens=1)])


def test_a_base_model_without_the_head_that_the_text_model_needs_is_refused_by_name(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "llama", tied=False)
    transformers.AutoModel.from_pretrained(folder).save_pretrained(folder)
    with pytest.raises(UserError, match=r"loads parameters that .* does not hold: 'lm_head\.weight'"):
        new_engine(folder)


def test_masks_and_frequencies_of_older_checkpoints_are_buffers(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "gpt_neox", tied=False)
    mask = torch.ones(1, 1, 8, 8)
    extra = {
        "gpt_neox.layers.0.attention.bias": mask.to(torch.uint8),
        "gpt_neox.layers.1.attention.bias": mask,
        "gpt_neox.layers.0.attention.masked_bias": torch.tensor(-1e9),
        "gpt_neox.layers.0.attention.rotary_emb.inv_freq": torch.ones(4),
    }
    engine = new_engine(rewrite(folder, lambda tensors: {**tensors, **extra}), canary=True)
    assert dict(engine._session.weights.selection.left_out) == dict.fromkeys(extra, "buffer")


def test_two_tensors_for_one_parameter_are_refused_by_both_names(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "gpt_neox", tied=False)
    rewrite(folder, lambda tensors: {**tensors, "lm_head.weight": tensors["embed_out.weight"].clone()})
    with pytest.raises(UserError, match=r"'embed_out.weight', 'lm_head.weight', which transformers loads as one"):
        new_engine(folder)


def test_a_tied_head_that_is_stored_again_moves_with_the_embedding(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "llama", tied=True)
    same = rewrite(folder, lambda t: {**t, "lm_head.weight": t["model.embed_tokens.weight"].clone()})
    engine = new_engine(same, canary=True)
    (tied,) = [spec for spec in engine._session.weights.selection.tensors if spec.aliases]
    assert (tied.name, tied.aliases) == ("lm_head.weight", ("model.embed_tokens.weight",))


def test_a_tied_head_with_other_values_is_refused(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "llama", tied=True)
    rewrite(folder, lambda t: {**t, "lm_head.weight": t["model.embed_tokens.weight"] + 1})
    with pytest.raises(
        UserError, match=r"ties 'model\.embed_tokens\.weight' to 'lm_head\.weight', but .* different: leave"
    ):
        new_engine(folder)
    configure(folder, tie_word_embeddings=False)
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= names_of(new_engine(folder, canary=True))


def test_tying_that_only_the_text_configuration_says_counts(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "gemma3", tied=True)
    config = json.loads((folder / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    config["text_config"]["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    assert "lm_head.weight" not in names_of(new_engine(folder, canary=True))


def test_tensors_in_several_formats_are_served_in_one(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "llama", tied=False)

    def mixed(tensors):
        kinds = (torch.float32, torch.bfloat16, torch.float16)
        return {name: tensor.to(kinds[i % 3]) for i, (name, tensor) in enumerate(sorted(tensors.items()))}

    rewrite(folder, mixed)
    engine = new_engine(folder, canary=True, dtype="bfloat16")
    assert {spec.dtype for spec in engine._session.weights.selection.tensors} == {"float32", "bfloat16", "float16"}
    engine.export(tmp_path / "out")
    assert {n: t.dtype for n, t in safetensors.torch.load_file(tmp_path / "out" / FILE).items()} == {
        n: t.dtype for n, t in safetensors.torch.load_file(folder / FILE).items()
    }


def test_a_tensor_in_eight_bits_is_refused_by_name(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "llama", tied=False)
    name = "model.layers.0.mlp.up_proj.weight"
    rewrite(folder, lambda tensors: {**tensors, name: tensors[name].to(torch.float8_e4m3fn)})
    with pytest.raises(UserError, match=rf"holds packed tensors \(F8_E4M3\): '{name}'"):
        new_engine(folder)


def test_tensors_that_nothing_loads_are_listed_whatever_their_shape(new_engine, tmp_path):
    folder = save_tiny(tmp_path / "m", "llama", tied=False)
    extra = {"empty": torch.ones(0), "nothing.here": torch.ones(3, 0), "scalar": torch.tensor(2.0)}
    engine = new_engine(rewrite(folder, lambda tensors: {**tensors, **extra}), canary=True)
    assert dict(engine._session.weights.selection.left_out) == dict.fromkeys(extra, "not loaded by the engine")
    engine.export(tmp_path / "out")
    kept = safetensors.torch.load_file(tmp_path / "out" / FILE)
    assert {name: tuple(kept[name].shape) for name in extra} == {n: tuple(t.shape) for n, t in extra.items()}


def test_what_transformers_changes_as_it_loads_is_refused_by_name(new_engine, tmp_path, monkeypatch):
    folder = save_tiny(tmp_path / "m", "llama", tied=False)
    load = transformers.AutoModelForCausalLM.from_pretrained

    def scaled(*args, **options):
        model = load(*args, **options)
        model.model.norm.weight.data *= 2
        return model

    monkeypatch.setattr(loading.transformers.AutoModelForCausalLM, "from_pretrained", scaled)
    with pytest.raises(UserError, match=r"transformers changes 1 tensors of the checkpoint.*: 'model\.norm\.weight'"):
        new_engine(folder)


@pytest.mark.parametrize("kind", ["gpt_neox", "gpt2", "qwen3_5", "gemma3"])
def test_the_selection_without_weights_is_that_of_the_loaded_model(new_engine, tmp_path, kind):
    folder = save_tiny(tmp_path / "m", kind)
    assert select(folder, tensors_of(folder)) == new_engine(folder)._session.weights.selection


def test_a_served_member_is_written_into_every_stored_tensor(new_engine, tmp_path):
    engine = new_engine(save_tiny(tmp_path / "m", "gpt_neox", tied=False))
    weights = engine._session.weights
    name = "embed_out.weight"
    model = engine._session.decoder.model
    assert np.array_equal(weights.read(name), model.lm_head.weight.detach().numpy())
