"""Which tensors a model's architecture loads, by checkpoint name: without its weights and without a device."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from coevo.errors import UserError
from coevo.weights.selection import LoadedTensor


def loaded_tensors(model: Any) -> tuple[dict[str, Any], dict[str, LoadedTensor]]:
    """Parameters by the first name, in sorted order, of each tied group; and all that a checkpoint may hold.

    Args:
        model: a torch module, on any device.
    """
    groups: dict[int, list[str]] = {}
    by_id: dict[int, Any] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(parameter), []).append(name)
        by_id[id(parameter)] = parameter
    parameters: dict[str, Any] = {}
    tensors: dict[str, LoadedTensor] = {}
    for key, names in groups.items():
        first, *others = sorted(names)
        parameters[first] = by_id[key]
        tensors[first] = LoadedTensor(tuple(by_id[key].shape), tuple(others))
    for name, buffer in model.named_buffers():
        tensors.setdefault(name, LoadedTensor(tuple(buffer.shape), parameter=False))
    return parameters, tensors


def tensors_of(folder: Path) -> dict[str, LoadedTensor]:
    """What transformers' text model of a checkpoint folder loads: what every engine selects from.

    Raises:
        UserError: transformers knows no such causal language model.
    """
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - whatever a broken folder makes of it is the user's to mend
        said = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"transformers knows no text model in {str(folder)!r}: {said[:300]}") from None
    return loaded_tensors(model)[1]
