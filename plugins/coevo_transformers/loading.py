"""Loading a model: format and device, tokenizer, what ends an answer, and which tensors are parameters."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
import transformers

from coevo.engines.vocabulary import check_vocabulary, turn_ends
from coevo.errors import UserError
from coevo.weights import noise
from coevo.weights.architecture import loaded_tensors, tensors_of
from coevo.weights.configuration import asked, blamed, quietly, vocabulary, words
from coevo.weights.dtypes import FROM_SAFETENSORS, DType, dtype_of
from coevo.weights.finite import require_finite
from coevo.weights.selection import LoadedTensor, note_unused, select
from coevo.weights.stored import StoredTensor, open_checkpoint, shortened
from coevo.weights.torch_memory import as_numpy

_LOOK = 16
"""Tokens of a prompt that a model is asked to see that it answers: fewer than any model takes."""

DTypeOption: TypeAlias = Literal["auto", "bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run.

    Attributes:
        folder: Its checkpoint.
        parameters: Its parameters by name, one name a tied group (the first in sorted order).
        tensors: The same as the selection wants them, and the buffers that a checkpoint may hold.
        eos_ids: The tokens that end a turn.
        context_tokens: Longest prompt plus answer, None where the model does not say.
    """

    model: Any
    tokenizer: Any
    folder: Path
    dtype: str
    parameters: dict[str, torch.nn.Parameter]
    tensors: dict[str, LoadedTensor]
    eos_ids: frozenset[int]
    pad_id: int
    context_tokens: int | None


def choose_device(device: str) -> torch.device:
    """The device that is meant: `auto` is CUDA where there is one.

    Raises:
        UserError: There is no such device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        said = str(error).partition("\n")[0]
        raise UserError(f"cannot use device {device!r}: {said}; expected 'auto', 'cpu' or 'cuda'") from None


def choose_dtype(dtype: DTypeOption, device: torch.device) -> DType:
    """The format to serve in: `auto` is bfloat16 where the hardware computes in it, else float32."""
    if dtype != "auto":
        return dtype
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    return "bfloat16" if device.type == "cpu" and cpu_has_bfloat16() else "float32"


def cpu_has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 matrices itself: emulated it is slower than float32."""
    flags = _cpu_flags()
    if {"avx512_bf16", "amx_bf16"} & flags:
        return True
    return "bf16" in flags and hasattr(torch.backends, "mkldnn") and torch.backends.mkldnn.is_available()


def _cpu_flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    line = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return set(line.group(1).split()) if line else set()


def load(
    folder: Path, tokenizer: Any, prompt: Sequence[int], dtype: DType, device: torch.device, attention: str
) -> Loaded:
    """Loads a dense text model for generation; it is asked `prompt`, tokens of its tokenizer's, to see that it answers.

    Raises:
        UserError: The folder holds no model that transformers loads as a causal language model without
            remote code, or one that does not compute with its tokenizer's tokens.
    """
    library: Any = transformers  # its own types are too incomplete to check against
    # What transformers says late or not at all is said in one line, and at once.
    tensors, stored = tensors_of(folder), open_checkpoint(folder)
    selection = select(folder, tensors)
    note_unused(selection, folder)
    require_finite(selection, stored, dtype)
    rows = vocabulary(folder)
    check_vocabulary(tokenizer, folder, rows, prompt)
    eos = turn_ends(tokenizer, folder, rows)
    with quietly():
        try:
            model: Any = library.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=getattr(torch, dtype),
                attn_implementation=None if attention == "auto" else attention,
                local_files_only=True,
                trust_remote_code=False,
            )
        except Exception as error:  # noqa: BLE001 - whatever a broken folder makes of it is the user's to mend
            raise UserError(f"transformers cannot load {str(folder)!r}: {words(error)}") from None
    parameters, _ = loaded_tensors(model, stored)
    _require_stored(parameters, stored)
    model.eval().requires_grad_(False).to(device)
    for parameter in parameters.values():
        # transformers may map the file; the kernels write here, and a packed layout would not be the plain one.
        parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
    _require_answers(model, prompt, folder, dtype)
    pad = getattr(tokenizer, "pad_token_id", None)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        folder=folder,
        dtype=dtype,
        parameters=parameters,
        tensors=tensors,
        eos_ids=eos,
        pad_id=int(pad) if pad is not None and 0 <= pad < rows else min(eos),
        context_tokens=_context_tokens(model, tokenizer),
    )


def _require_answers(model: Any, prompt: Sequence[int], folder: Path, dtype: DType) -> None:
    """Ask the model for one token after a prompt: a wrong entry of its configuration may show here only.

    Raises:
        UserError: it has none, or none of finite numbers.
    """
    config = str(folder / "config.json")
    try:
        with torch.inference_mode():
            ids = torch.tensor([prompt[:_LOOK]], device=model.device)
            answer: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    except Exception as error:  # noqa: BLE001 - whatever a broken configuration makes of it is the user's to mend
        with quietly():
            at_fault = blamed(folder, asked, error) or config
        raise UserError(f"{at_fault}, with which transformers computes no answer: {words(error)}") from None
    # What is computed from the configuration. A mask may hold minus infinity; attention hides the rest from answers.
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    if wrong := next((name for name, b in buffers.items() if (b.isnan() | b.isposinf()).any()), ""):
        raise UserError(f"{config!r} has a wrong entry: of it transformers computes a {wrong!r} that is not finite")
    if not answer.isfinite().all():
        raise UserError(
            f"the model in {str(folder)!r} answers with numbers that are not finite in {dtype}, and its weights are "
            f"finite: look for a wrong entry in {config!r}, or choose another dtype"
        )


def _require_stored(parameters: Mapping[str, torch.nn.Parameter], stored: Mapping[str, StoredTensor]) -> None:
    """Refuse a model whose parameters are not the checkpoint's tensors, value by value, in the format that is served.

    What is served is written from the checkpoint, whatever was loaded here: a tensor that transformers changes as it
    loads it would make another model of it.

    Raises:
        UserError: which tensors differ.
    """
    wrong = [name for name, found in parameters.items() if name in stored and not _equals(found.data, stored[name])]
    if wrong:
        raise UserError(
            f"transformers changes {len(wrong)} tensors of the checkpoint as it loads them, so coevo cannot serve "
            f"others in their place: {shortened(sorted(wrong))}"
        )


def _equals(found: torch.Tensor, entry: StoredTensor) -> bool:
    if tuple(found.shape) != entry.shape:
        return False
    held, served = entry.read(), as_numpy(found.contiguous())
    dtype = dtype_of(served)
    if FROM_SAFETENSORS[entry.code] != dtype:
        held = noise.cast(noise.from_bfloat16(held) if entry.code == "BF16" else held.astype(np.float32), dtype)
    # As bits, where -0.0 is not 0.0.
    return np.array_equal(held.reshape(-1).view(np.uint8), served.reshape(-1).view(np.uint8))


def _context_tokens(model: Any, tokenizer: Any) -> int | None:
    config = model.config.get_text_config(decoder=True)
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    limit = getattr(tokenizer, "model_max_length", None)
    return int(limit) if limit is not None and limit < 1 << 30 else None  # else a stand-in for "unknown"
