"""Which tensors a model's architecture loads, by checkpoint name: without its weights and without a device.

A checkpoint's names need not be the modules': transformers renames some as it loads them (GPT-NeoX's `embed_out`),
adds or leaves out the base model's prefix, and makes one tensor of several. Its own rules are asked here.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coevo.errors import UserError
from coevo.weights.configuration import empty_model
from coevo.weights.parts import shortened
from coevo.weights.selection import LoadedTensor, tower_of
from coevo.weights.stored import open_checkpoint


def loaded_tensors(model: Any, stored: Collection[str]) -> tuple[dict[str, Any], dict[str, LoadedTensor]]:
    """Parameters by the first name, in sorted order, of each tied group; and all that a checkpoint may hold.

    Some text models bring a vision or audio tower along: its tensors are not among them.

    Args:
        model: a transformers model, on any device.
        stored: the names of the checkpoint's tensors.

    Returns:
        Both by checkpoint name; what the checkpoint does not hold, by the module's.

    Raises:
        UserError: transformers makes a parameter out of several tensors, or has the choice between several.
    """
    names = _stored_names(model, stored)
    groups: defaultdict[int, list[str]] = defaultdict(list)
    by_id: dict[int, Any] = {}
    every: Iterable[tuple[str, Any]] = model.named_parameters(remove_duplicate=False)
    for name, parameter in every:
        if tower_of(name):
            continue
        groups[id(parameter)].append(names.get(name, name))
        by_id[id(parameter)] = parameter
    parameters: dict[str, Any] = {}
    tensors: dict[str, LoadedTensor] = {}
    for key, group in groups.items():
        first, *others = sorted(group)
        parameters[first] = by_id[key]
        tensors[first] = LoadedTensor(tuple(by_id[key].shape), tuple(others))
    buffers: Iterable[tuple[str, Any]] = model.named_buffers()
    for name, buffer in buffers:
        tensors.setdefault(names.get(name, name), LoadedTensor(tuple(buffer.shape), parameter=False))
    return parameters, tensors


def tensors_of(folder: Path) -> dict[str, LoadedTensor]:
    """What transformers' text model of a checkpoint folder loads: what every engine selects from.

    Raises:
        UserError: transformers knows no such causal language model, or does not load its tensors one to one.
    """
    stored = open_checkpoint(folder)
    return loaded_tensors(empty_model(folder), stored)[1]


def _stored_names(model: Any, stored: Collection[str]) -> dict[str, str]:
    """Checkpoint names by module name, found with the rules that transformers loads by."""
    conversion: Any = importlib.import_module("transformers.conversion_mapping")
    loading: Any = importlib.import_module("transformers.core_model_loading")
    rules: Sequence[Any] = conversion.get_model_conversion_mapping(model)
    renamings = [rule for rule in rules if isinstance(rule, loading.WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, loading.WeightConverter)]
    there: Mapping[str, Any] = model.state_dict()
    prefix = model.base_model_prefix
    found: dict[str, list[str]] = defaultdict(list)
    made: dict[str, list[str]] = defaultdict(list)
    for name in sorted(stored, key=loading.dot_natural_key):  # in this order, which some rules depend on
        renamed, converted = loading.rename_source_key(name, renamings, converters, prefix, there)
        if renamed not in there and name in there:  # stored as this version would name it
            renamed, converted = loading.rename_source_key(name, [], [], prefix, there)
        if renamed in there:
            (made if converted else found)[renamed].append(name)
    if made:
        parts = [name for group in made.values() for name in group]
        raise UserError(
            f"transformers does not load this {type(model).__name__} tensor by tensor: it makes {len(made)} of "
            f"{len(parts)}, such as {next(iter(made))!r} of {shortened(next(iter(made.values())), 2)}; "
            "expected a dense text model"
        )
    if doubtful := next((group for group in found.values() if len(group) > 1), None):
        raise UserError(
            f"the checkpoint holds {shortened(doubtful)}, which transformers loads as one tensor: leave out what is "
            "not the model's"
        )
    return {module: group[0] for module, group in found.items()}
