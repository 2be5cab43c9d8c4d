"""Where a model's shape comes from, and that the shipped shapes are those of real models."""

import pytest

from coevo.errors import UserError
from coevo.tools.sizing.architecture import architecture, known, of_folder, parse_count
from tests.tiny_llama import save_tiny_llama


def counted(entry):
    """Parameters of the text model that transformers builds from a shape, without memory for them."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    same = {
        "vocab_size": entry["vocab"],
        "hidden_size": entry["hidden"],
        "intermediate_size": entry["intermediate"],
        "num_hidden_layers": entry["layers"],
        "num_attention_heads": entry["heads"],
        "num_key_value_heads": entry["kv_heads"],
        "tie_word_embeddings": entry["tied"],
    }
    if "full_layers" in entry:
        from transformers.models.qwen3_5 import Qwen3_5TextConfig

        config = Qwen3_5TextConfig(
            **same, head_dim=entry["head_dim"], linear_num_key_heads=entry["linear_key_heads"],
            linear_num_value_heads=entry["linear_value_heads"], linear_key_head_dim=entry["linear_key_dim"],
            linear_value_head_dim=entry["linear_value_dim"], linear_conv_kernel_dim=entry["convolution"],
        )  # fmt: skip
        assert config.layer_types.count("full_attention") == entry["full_layers"]
    elif "Qwen2.5" in entry["names"][0]:
        config = transformers.Qwen2Config(**same)
    else:
        config = transformers.LlamaConfig(**same)
    assert getattr(config, "head_dim", None) in (None, entry["head_dim"])
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", sorted(known()))
def test_a_known_shape_makes_a_model_of_so_many_parameters(name):
    entry = known()[name]
    assert counted(entry) == entry["parameters"]
    assert entry["heads"] * entry["head_dim"] >= entry["hidden"] // 2
    assert entry["source"]


def test_every_name_is_of_one_shape():
    names = [name for key, entry in known().items() for name in (key, *entry["names"])]
    assert len(names) == len(set(names))


def test_the_cache_of_a_token_is_two_vectors_of_every_head_and_layer():
    assert architecture("meta-llama/Llama-3.1-8B-Instruct").kv_bytes(2) == 2 * 32 * 8 * 128 * 2 == 131_072


def test_only_layers_with_full_attention_have_a_cache_and_the_others_a_state():
    shape = architecture("Qwen/Qwen3.5-27B")
    assert shape.kv_bytes(2) == 2 * 16 * 4 * 256 * 2 == 65_536
    heads = 48 * 128 * 128 * 4
    convolution = (2 * 16 * 128 + 48 * 128) * 3 * 2
    assert shape.state_bytes(2) == 48 * (heads + convolution)


def test_a_head_is_not_cut_and_some_are_kept_twice():
    shape = architecture("Qwen/Qwen3.5-27B")
    assert [shape.kv_bytes(2, shards) for shards in (1, 2, 4, 8)] == [65_536, 32_768, 16_384, 16_384]


def test_a_folder_is_read_from_its_config_and_headers(tmp_path):
    folder = save_tiny_llama(tmp_path / "tiny", width=64, layers=3)
    shape = of_folder(folder)
    layer = 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    assert (shape.vocab, shape.tied, shape.heads, shape.kv_heads, shape.head_dim) == (259, True, 4, 2, 16)
    assert shape.parameters == 259 * 64 + 3 * layer + 64
    assert architecture(str(folder)) == shape


def test_an_alias_that_is_not_pulled_is_known_all_the_same(in_empty_folder):
    assert architecture("smollm2-135m").parameters == 134_515_008


def test_a_name_of_which_nothing_is_known_says_how_to_tell():
    with pytest.raises(UserError, match=r"model 'Qwen/Qwen3.5-4b'; did you mean 'Qwen/Qwen3.5-4B'\?; give it with"):
        architecture("Qwen/Qwen3.5-4b")
    shape = architecture("someone/else", 4_000_000_000)
    assert (shape.parameters, shape.kv_bytes(2)) == (4_000_000_000, None)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="is empty; expected config"):
        architecture(str(tmp_path / "empty"))


def test_given_parameters_count_for_a_known_model_too():
    shape = architecture("Qwen/Qwen3.5-4B", 5_000_000_000)
    assert (shape.parameters, shape.layers) == (5_000_000_000, 32)


@pytest.mark.parametrize("text", ["four", "-1", "nan", "1e999", ""])
def test_a_count_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="expected a number of weights such as 4e9"):
        parse_count(text)


def test_a_count_may_have_an_exponent_or_underscores():
    assert [parse_count(text) for text in ("4e9", "4_000", "135000000")] == [4_000_000_000, 4_000, 135_000_000]
