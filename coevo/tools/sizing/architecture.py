"""A model's shape: what of it decides how much memory it needs."""

from __future__ import annotations

import math
import os
import tomllib
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from coevo.errors import UserError, did_you_mean
from coevo.machine.places import expanded
from coevo.models.catalogue import ALIASES, resolve

STATE_BYTES = 4
"""A number of the recurrent state: Qwen3.5 keeps it in fp32 (`mamba_ssm_dtype`)."""
_BEYOND = 1 << 40
"""No size in a config.json is so large; what is computed from it would be no finite number."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shape of a decoder. Sizes that are not known are None, and nothing is computed from them.

    Attributes:
        source: where the numbers come from.
        parameters: how many, a tied group counted once.
        layers, hidden, intermediate, heads, kv_heads, head_dim, vocab: as in a config.json.
        context: longest prompt plus answer in tokens that the model was made for.
        tied: whether the head is the embedding.
        full_layers: layers with a key/value cache; None: all.
        linear_key_heads, linear_value_heads, linear_key_dim, linear_value_dim, convolution: of the other layers.
    """

    source: str
    parameters: int
    layers: int | None = None
    hidden: int | None = None
    intermediate: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    vocab: int | None = None
    context: int | None = None
    tied: bool | None = None
    full_layers: int | None = None
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_key_dim: int = 0
    linear_value_dim: int = 0
    convolution: int = 0

    def kv_bytes(self, width: int, shards: int = 1) -> int | None:
        """Bytes of key/value cache that one token takes on one of `shards` devices, numbers of `width` bytes.

        A head is not split: with more shards than key/value heads, some are kept twice.
        """
        layers = self.full_layers if self.full_layers is not None else self.layers
        if layers is None or self.kv_heads is None or self.head_dim is None:
            return None
        return 2 * layers * -(-self.kv_heads // shards) * self.head_dim * width

    def state_bytes(self, width: int, shards: int = 1) -> int:
        """Bytes that a sequence of any length takes in the layers without a key/value cache, on one device."""
        linear = 0 if self.layers is None or self.full_layers is None else self.layers - self.full_layers
        state = self.linear_value_heads * self.linear_key_dim * self.linear_value_dim * STATE_BYTES
        channels = 2 * self.linear_key_heads * self.linear_key_dim + self.linear_value_heads * self.linear_value_dim
        return -(-linear * (state + channels * max(0, self.convolution - 1) * width) // shards)

    def largest_tensor(self) -> int | None:
        """Elements of the embedding or of a feed-forward matrix, whichever has more."""
        if self.vocab is None or self.hidden is None or self.intermediate is None:
            return None
        return self.hidden * max(self.vocab, self.intermediate)


def architecture(model: str, parameters: int | None = None) -> Architecture:
    """The shape of a model that is here, or of one that is known. Nothing is downloaded.

    Args:
        model: an alias, a folder or a hub id.
        parameters: how many it has, where nothing else is known of it; of a known model, instead of its own.

    Raises:
        UserError: the folder is no model, or nothing is known of the name; the message says how to tell.
    """
    found = _known(model)
    if model in ALIASES or os.path.isdir(expanded(model)):
        try:
            found = of_folder(Path(resolve(model)))
        except UserError:
            if found is None:  # an alias that is not pulled yet is in the table
                raise
    if found is None and parameters is None:
        raise UserError(
            f"nothing is known of the size of model {model!r}{_hint(model)}; give it with --parameters 4e9, "
            "or name a folder that holds it"
        )
    if found is None:
        return Architecture(source="--parameters", parameters=cast(int, parameters))
    if parameters is None:
        return found
    return replace(found, parameters=parameters, source=f"{found.source}, with --parameters")


def known() -> dict[str, dict[str, Any]]:
    """The table of architectures that coevo ships: fields by name."""
    text = files("coevo.tools.sizing").joinpath("architectures.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _known(model: str) -> Architecture | None:
    for name, entry in known().items():
        if model in (name, *entry["names"]):
            return Architecture(**{key: value for key, value in entry.items() if key != "names"})
    return None


def _hint(model: str) -> str:
    hint = did_you_mean(model, [word for name, entry in known().items() for word in (name, *entry["names"])])
    return hint if hint.startswith("; did") else ""


def of_folder(folder: Path) -> Architecture:
    """The shape of a model folder, from its config.json and the headers of its safetensors files.

    Raises:
        UserError: it holds no model.
    """
    from coevo.weights.dtypes import FROM_SAFETENSORS
    from coevo.weights.stored import open_checkpoint, read_json, text_part

    config = read_json(folder / "config.json")
    told: dict[str, Any] = {**config, **text_part(config)}

    def count(key: str, least: int = 1) -> int | None:
        value: Any = told.get(key)
        if value is None or isinstance(value, list):  # one for each layer, in some models
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < _BEYOND:
            where = str(folder / "config.json")
            raise UserError(f"{where!r} has {key} = {value!r:.60}; expected a whole number of {least} or more")
        return value

    stored = open_checkpoint(folder)
    parameters = sum(math.prod(entry.shape) for entry in stored.values() if entry.code in FROM_SAFETENSORS)
    heads, hidden = count("num_attention_heads"), count("hidden_size")
    listed = told.get("layer_types")
    kinds = cast(list[object], listed) if isinstance(listed, list) else []
    tied = told.get("tie_word_embeddings")
    return Architecture(
        source=f"config.json and safetensors headers of {folder.name!r}",
        parameters=parameters,
        layers=count("num_hidden_layers"),
        hidden=hidden,
        intermediate=count("intermediate_size"),
        heads=heads,
        kv_heads=count("num_key_value_heads") or heads,
        head_dim=count("head_dim") or (hidden // heads if hidden and heads else None),
        vocab=count("vocab_size"),
        context=count("max_position_embeddings"),
        tied=tied if isinstance(tied, bool) else None,
        full_layers=sum(kind != "linear_attention" for kind in kinds) if kinds else None,
        linear_key_heads=count("linear_num_key_heads", 0) or 0,
        linear_value_heads=count("linear_num_value_heads", 0) or 0,
        linear_key_dim=count("linear_key_head_dim", 0) or 0,
        linear_value_dim=count("linear_value_head_dim", 0) or 0,
        convolution=count("linear_conv_kernel_dim", 0) or 0,
    )


def parse_count(text: str) -> int:
    """`4e9` or `4_000_000_000` as a number of parameters.

    Raises:
        UserError: it is no such number.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 1):
        raise UserError(f"--parameters got {text!r}: expected a number of weights such as 4e9")
    return int(number)
