"""Tiny random models of many architectures, saved as transformers saves them: a few thousand weights each.

The tokenizer is the byte-level one of `tests.tiny_llama`; the shapes are its architectures' own names for the same
small sizes.
"""

from pathlib import Path

from tests.tiny_llama import byte_tokenizer

SHARD = "12KB"
"""Small enough that every one of these models needs several files."""

_SHAPE = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 128,
}  # fmt: skip
_GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 128}
_EXPERTS = {
    "num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}  # fmt: skip
_DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip
_EYE = {"image_size": 28, "patch_size": 14}
_OWN = {
    "gpt2": _GPT,
    "opt": {"hidden_size": 16, "ffn_dim": 32, "word_embed_proj_dim": 16, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": 128},
    "falcon": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    "bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2},
    "mpt": {"d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 128},
    "apertus": {**_SHAPE, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "mixtral": {**_SHAPE, **_EXPERTS},
    "qwen2_moe": {**_SHAPE, **_EXPERTS},
    "mamba": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "expand": 2, "time_step_rank": 4},
    "recurrent_gemma": {**_SHAPE, "lru_width": 16},
}  # fmt: skip
_TEXT_OF = {
    "gemma3": ({**_SHAPE, "model_type": "gemma3_text"},
               {"model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 32,
                "num_hidden_layers": 1, "num_attention_heads": 2, **_EYE}, {"mm_tokens_per_image": 4}),
    "qwen3_5": ({**_SHAPE, **_DELTA},
                {"depth": 1, "hidden_size": 16, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 16,
                 "num_position_embeddings": 4}, {}),
}  # fmt: skip
"""Models with a vision tower: the shapes of text and vision, and what the whole has beside."""


def save_tiny(
    folder: Path,
    kind: str,
    *,
    sharded: bool = False,
    tied: bool | None = None,
    template: str | None = "",
    seed: int = 0,
) -> Path:
    """Save a random model with its tokenizer and return the folder.

    Args:
        folder: where to save; made if missing.
        kind: transformers' name of the architecture (`model_type`).
        sharded: in several files.
        tied: whether the head is the embedding; None leaves it to the architecture.
        template: the chat template; "" is the tokenizer's own, None is none.
        seed: of the weights. torch's global generator is left as it was.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    tokenizer = byte_tokenizer()
    common = {
        "vocab_size": len(tokenizer), "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id,
    }  # fmt: skip
    if tied is not None:
        common["tie_word_embeddings"] = tied
    if kind in _TEXT_OF:
        text, vision, rest = _TEXT_OF[kind]
        config = CONFIG_MAPPING[kind](text_config={**text, **common}, vision_config=vision, **rest)
        factory = AutoModelForImageTextToText
    else:
        config, factory = CONFIG_MAPPING[kind](**{**_OWN.get(kind, _SHAPE), **common}), AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = factory.from_config(config)
    model.save_pretrained(folder, **({"max_shard_size": SHARD} if sharded else {}))
    if template != "":
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return folder
