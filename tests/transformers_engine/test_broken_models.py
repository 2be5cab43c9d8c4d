"""Folders that are no model, or no longer one: each is refused at the start, in a line that says what is wrong."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from coevo.errors import UserError
from coevo_transformers.engine import TransformersEngine
from tests.asking_kit import ask, complete
from tests.tiny_llama import byte_tokenizer
from tests.tiny_models import save_tiny


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("models") / "whole", "llama")


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "model")


def changed(folder, file, **entries):
    """A JSON file of the folder with other entries; a dot in a name goes into a table."""
    path = folder / file
    data = json.loads(path.read_text()) if path.is_file() else {}
    for name, value in entries.items():
        *tables, last = name.split("__")
        inner = data
        for table in tables:
            inner = inner[table]
        inner[last] = value
    path.write_text(json.dumps(data))


def refused(folder):
    """What the engine says of a folder."""
    with pytest.raises(UserError) as caught:
        TransformersEngine(str(folder), dtype="float32", canary=False)
    said = str(caught.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("model_type", ["llama"]),
        ("model_type", None),
        ("eos_token_id", "<|im_end|>"),
        ("dtype", "float33"),
        ("dtype", {}),
        ("hidden_act", "sily"),
        ("vocab_size", -1),
        ("vocab_size", "many"),
        ("num_attention_heads", 0),
        ("num_hidden_layers", -1),
        ("num_hidden_layers", 10**30),
        ("head_dim", "eight"),
        ("head_dim", 0),
        ("rope_parameters__rope_type", "yarm"),
        ("rope_parameters__rope_theta", []),
        ("rope_parameters", "default"),
        ("tie_word_embeddings", "no"),
        ("max_position_embeddings", None),
    ],
)
def test_a_wrong_entry_of_the_configuration_is_told_with_its_value(folder, entry, value):
    changed(folder, "config.json", **{entry: value})
    said = refused(folder)
    assert said.startswith(f"'{folder}/config.json' has {entry.replace('__', '.')} = {value!r}")


def test_a_count_of_things_that_would_never_all_be_made_is_refused_before_the_tokenizer_is_read_too(folder):
    changed(folder, "config.json", num_hidden_layers=10**12)
    with pytest.raises(UserError, match=r"num_hidden_layers = 1000000000000; expected a number of 1 to 1000"):
        TransformersEngine.token_counter(str(folder), {})


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ("vocab_size", 300, "'model.embed_tokens.weight' has shape (259, 16) in the checkpoint, (300, 16)"),
        ("intermediate_size", 48, "'model.layers.0.mlp.gate_proj.weight' has shape (32, 16) in the checkpoint, (48, "),
    ],
)
def test_a_size_that_is_not_the_weights_is_told_with_its_entry(folder, entry, value, said):
    changed(folder, "config.json", **{entry: value})
    found = refused(folder)
    assert said in found
    assert f"; config.json says {entry} = {value}" in found


@pytest.mark.parametrize("theta", [0, -1])
def test_a_configuration_that_makes_numbers_that_are_not_finite_is_refused(folder, theta):
    changed(folder, "config.json", rope_parameters__rope_theta=theta)
    assert "config.json' has a wrong entry: of it transformers computes a 'model.rotary_emb.inv_freq'" in refused(
        folder
    )


def test_an_architecture_that_transformers_does_not_know_is_told_without_its_list(folder):
    changed(folder, "config.json", model_type="lama")
    said = refused(folder)
    assert "has model type `lama`" in said
    assert len(said) < 300


def test_more_layers_than_there_are_weights_of_is_refused(folder):
    changed(folder, "config.json", num_hidden_layers=3)
    assert f"the engine loads parameters that '{folder}' does not hold: 'model.layers.2." in refused(folder)


def test_a_tensor_that_the_file_lacks_is_refused_by_name(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert "does not hold: 'model.norm.weight'" in refused(folder)


def test_tensors_that_the_model_does_not_use_are_noted_once(folder, new_engine, caplog):
    changed(folder, "config.json", num_hidden_layers=1)
    new_engine(folder)
    (note,) = [record.getMessage() for record in caplog.records if "does not use" in record.getMessage()]
    assert "does not use 9 of the tensors in its files, such as 'model.layers.1.input_layernorm.weight'" in note


def test_a_whole_model_has_no_note(whole, new_engine, caplog):
    new_engine(whole)
    assert not [record for record in caplog.records if "does not use" in record.getMessage()]


@pytest.mark.parametrize(("value", "what"), [(float("nan"), "NaN"), (float("-inf"), "an infinity")])
def test_weights_that_are_not_finite_are_refused_with_tensor_and_file(folder, value, what):
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 4] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert refused(folder).startswith(
        f"'model.layers.1.mlp.up_proj.weight' in '{folder}/model.safetensors' holds {what}"
    )


def test_a_folder_without_a_tokenizer_is_refused_with_what_was_expected(folder):
    (folder / "tokenizer.json").unlink()
    said = refused(folder)
    assert said.startswith(f"the model folder '{folder}' holds no tokenizer; expected tokenizer.json, or ")
    with pytest.raises(UserError, match="holds no tokenizer"):
        TransformersEngine.token_counter(str(folder), {})


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": 3}', '{"model": {"type": "BPE"}}'])
def test_a_tokenizer_that_cannot_be_read_is_refused_by_its_file(folder, text):
    (folder / "tokenizer.json").write_text(text)
    assert "tokenizer.json" in refused(folder)


@pytest.mark.parametrize(
    ("entry", "value"), [("padding_side", "top"), ("eos_token", 3), ("model_max_length", "long"), ("auto_map", None)]
)
def test_a_wrong_entry_of_the_tokenizer_s_configuration_is_told_with_its_value(folder, entry, value):
    changed(folder, "tokenizer_config.json", **{entry: value})
    assert refused(folder).startswith(f"'{folder}/tokenizer_config.json' has {entry} = {value!r}, which transformers ")


@pytest.mark.parametrize(
    ("number", "token"),
    [
        (300, "2 of its 260 tokens, such as '<|im_end|>' (259)"),
        (256, "1 of its 260 tokens, such as '<|im_end|>' (259)"),
    ],
)
def test_tokens_beyond_the_embedding_are_refused(folder, number, token):
    """Of the vocabulary, or one that moves what the chat template writes."""
    inner = json.loads((folder / "tokenizer.json").read_text())
    inner["model"]["vocab"]["zzz"] = number
    (folder / "tokenizer.json").write_text(json.dumps(inner))
    said = refused(folder)
    assert f"is not the model's: {token}, lie beyond the embedding's 259 rows" in said


def test_an_added_token_beyond_the_embedding_is_no_obstacle(folder, new_engine):
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<picture>"], "pad_token": "<padding>"})
    assert len(tokenizer) == 261
    tokenizer.save_pretrained(folder)
    asked = [ask("Hi", max_new_tokens=2), ask("How are you?", max_new_tokens=2)]  # padded
    assert len(complete(new_engine(folder), asked)) == 2


@pytest.mark.parametrize("value", ["<|im_end|>", [1.5], [[1]], 1e99, True, {}])
def test_a_wrong_end_of_a_turn_in_the_generation_s_configuration_is_told(folder, value):
    changed(folder, "generation_config.json", eos_token_id=value)
    said = refused(folder)
    assert f"eos_token_id = {value!r}" in said
    assert "generation_config.json" in said


def test_an_entry_of_the_generation_s_configuration_that_transformers_does_not_take_is_told(folder):
    changed(folder, "generation_config.json", pad_token_id="none")
    assert refused(folder).startswith(
        f"'{folder}/generation_config.json' has pad_token_id = 'none', which transformers does not take: "
    )


@pytest.mark.parametrize("value", [-1, 10**30])
def test_ends_of_a_turn_that_the_model_has_no_token_for_are_left_out(folder, new_engine, value):
    changed(folder, "generation_config.json", eos_token_id=value)
    engine = new_engine(folder)
    assert engine._session._eos == {byte_tokenizer().eos_token_id}
