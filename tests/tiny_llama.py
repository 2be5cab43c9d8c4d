"""A tiny random Llama saved as an ordinary model folder: what the engine, loop and kill tests run on.

Everything is made here, so no test needs the network: a byte-level tokenizer without merges (every byte
is a token, so any text round-trips), a ChatML template, tied embeddings, random weights. Heads and
key/value heads are even in number, so tensor parallelism 2 divides them.
"""

from pathlib import Path

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def save_tiny_llama(
    folder: Path,
    *,
    seed: int = 0,
    dtype: str = "bfloat16",
    tied: bool = True,
    width: int = 64,
    layers: int = 2,
    positions: int = 512,
    spread: float = 0.3,
) -> Path:
    """Save a random Llama with tokenizer, chat template and generation config, and return its folder.

    Args:
        folder: where to save; made if missing.
        seed: of the weights. torch's global generator is left as it was.
        dtype: of the saved weights, a torch name such as `"bfloat16"` or `"float32"`.
        tied: whether the head shares the embedding's tensor.
        width: hidden size, a multiple of 8.
        layers: number of transformer blocks.
        positions: context length in tokens.
        spread: standard deviation of the weights. transformers' 0.02 makes every token about equally
            likely and greedy decoding a matter of rounding; 0.3 gives peaked distributions.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
        initializer_range=spread,
        tie_word_embeddings=tied,
        bos_token_id=tokenizer.convert_tokens_to_ids("<|im_start|>"),
        eos_token_id=tokenizer.convert_tokens_to_ids("<|im_end|>"),
        pad_token_id=tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def byte_tokenizer():
    """Return a fast tokenizer with one token a byte and the three ChatML specials."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
