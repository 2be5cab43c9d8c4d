"""Which tensors of a checkpoint are the parameters that coevo perturbs and updates.

The engine says what its text model loads (`LoadedTensor` by checkpoint name); the checkpoint says what there
is, in which format. Selected is what both agree on. What is left out is listed with a reason, and what cannot
be perturbed exactly (packed, quantised) is refused.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from coevo.errors import UserError
from coevo.weights.dtypes import DTYPES, FROM_SAFETENSORS, DType
from coevo.weights.stored import StoredTensor, open_checkpoint, read_json, shortened, text_part

_log = logging.getLogger(__name__)
_UNUSED = "not loaded by the engine"
_PLAIN_INTEGERS = {"I64", "BOOL"}
_MARKS_OF_PACKING = ("hf_quant_config.json", "quantize_config.json", "quant_config.json", "quantization_config.json")
_TOWERS = (
    ("vision tower", ("visual", "vision", "image", "multi_modal_projector", "mm_projector")),
    ("audio tower", ("audio",)),
)
_REASONS = (
    *_TOWERS,
    ("buffer", ("inv_freq", "masked_bias", "position_ids", "rotary_emb")),
    ("extra head", ("mtp", "lm_head", "score", "classifier", "v_head", "value_head", "pooler", "nextn")),
)


@dataclass(frozen=True, slots=True)
class LoadedTensor:
    """A tensor that an engine loads, under its checkpoint name.

    Attributes:
        shape: Its shape as the checkpoint has it, before fusing and sharding.
        tied: The other names that share its storage.
        parameter: False for a buffer.
    """

    shape: tuple[int, ...]
    tied: tuple[str, ...] = ()
    parameter: bool = True


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A selected tensor.

    Attributes:
        name: The checkpoint name; of a tied group the first, in sorted order, that the checkpoint holds.
        shape: Its shape.
        dtype: The format that the checkpoint stores it in.
        scale: Its own factor on sigma and on update coefficients; 0 freezes it.
        aliases: The other names of its tied group, sorted.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    scale: float = 1.0
    aliases: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected tensors by sorted name, and (name, reason) of what was left out.

    Raises:
        ValueError: If the tensors are not sorted by name, or a name or alias appears twice.
    """

    tensors: tuple[TensorSpec, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        names = [spec.name for spec in self.tensors]
        every = names + [alias for spec in self.tensors for alias in spec.aliases]
        if names != sorted(names) or len(set(every)) != len(every):
            raise ValueError("the tensors of a selection must be sorted by name, each name and alias once")

    @property
    def size(self) -> int:
        """How many parameters are selected, a tied group counted once."""
        return sum(spec.size for spec in self.tensors)

    def to_json(self) -> dict[str, object]:
        """The selection as run.json holds it."""
        tensors = [
            {
                "name": spec.name,
                "shape": list(spec.shape),
                "dtype": spec.dtype,
                "scale": spec.scale,
                "aliases": list(spec.aliases),
            }
            for spec in self.tensors
        ]
        return {"tensors": tensors, "left_out": [list(pair) for pair in self.left_out]}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Selection":
        """Reads what `to_json` gave.

        Raises:
            ValueError: If `data` is something else.
        """
        try:
            entries, left_out = cast(Any, data["tensors"]), cast(Any, data["left_out"])
            tensors = [
                TensorSpec(
                    name=str(entry["name"]),
                    shape=tuple(int(n) for n in entry["shape"]),
                    dtype=DTYPES[DTYPES.index(entry["dtype"])],
                    scale=float(entry["scale"]),
                    aliases=tuple(str(alias) for alias in entry["aliases"]),
                )
                for entry in entries
            ]
            return cls(tuple(tensors), tuple((str(name), str(reason)) for name, reason in left_out))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a selection: {repr(error)[:200]}") from error


def select(folder: Path, loaded: Mapping[str, LoadedTensor] | None = None) -> Selection:
    """Chooses the tensors of a checkpoint folder that an engine's text model loads as parameters.

    Args:
        folder: Holds config.json and safetensors files.
        loaded: What the engine loads, by checkpoint name; a tied group may be given under any of its names,
            or all. None selects every float32, bfloat16 and float16 tensor, each by itself.

    Returns:
        The selection, every scale 1.

    Raises:
        UserError: If there is no checkpoint, if it is packed or quantised, if the engine loads a parameter
            that the checkpoint lacks, or has in another shape or format, or if nothing is left to select.
    """
    file = folder / "config.json"
    stored = open_checkpoint(folder)
    if not file.is_file():
        raise UserError(f"{str(folder)!r} has no config.json; expected a transformers model folder")
    config = read_json(file)
    _refuse_packed(folder, config, stored)
    if loaded is None:
        loaded = {name: LoadedTensor(entry.shape) for name, entry in stored.items() if entry.code in FROM_SAFETENSORS}
    groups = _tied_groups(loaded)
    tensors: list[TensorSpec] = []
    covered: set[str] = set()
    missing: list[str] = []
    for group, entry in groups:
        present = [name for name in group if name in stored]
        if not present:
            missing.append(group[0])
            continue
        tensors.append(_specified(present[0], group, entry, stored, config))
        covered.update(present)
    if missing:
        raise UserError(f"the engine loads parameters that {str(folder)!r} does not hold: {shortened(sorted(missing))}")
    if not tensors:
        raise UserError(f"{str(folder)!r} holds no tensor that the engine loads as a parameter")
    left_out = [(name, _reason(name, stored[name], loaded)) for name in sorted(stored.keys() - covered)]
    return Selection(tuple(sorted(tensors, key=lambda spec: spec.name)), tuple(left_out))


def _tied_groups(loaded: Mapping[str, LoadedTensor]) -> list[tuple[list[str], LoadedTensor]]:
    """Names that share storage, each group sorted and once, with one of its entries; parameters only."""
    group_of: dict[str, set[str]] = {}
    for name, entry in loaded.items():
        if entry.parameter:
            joined = {name, *entry.tied}.union(*(group_of.get(other, set()) for other in (name, *entry.tied)))
            group_of.update(dict.fromkeys(joined, joined))
    unique = {id(group): group for group in group_of.values()}
    return [(sorted(group), next(loaded[name] for name in group if name in loaded)) for group in unique.values()]


def _specified(
    name: str,
    group: Sequence[str],
    loaded: LoadedTensor,
    stored: Mapping[str, StoredTensor],
    config: Mapping[str, object],
) -> TensorSpec:
    found = stored[name]
    if found.shape != loaded.shape:
        unlike = {size for size in loaded.shape if size not in found.shape}
        entries = {**config, **text_part(config)}.items()
        told = [f"{key} = {value}" for key, value in entries if type(value) is int and value in unlike]
        of_it = f"; config.json says {', '.join(told[:3])}" if told else ""
        raise UserError(f"{name!r} has shape {found.shape} in the checkpoint, {loaded.shape} in the engine{of_it}")
    if found.code not in FROM_SAFETENSORS:
        raise UserError(f"{name!r} is stored as {found.code}, expected one of {sorted(FROM_SAFETENSORS)}")
    aliases = tuple(other for other in group if other != name)
    return TensorSpec(name, found.shape, FROM_SAFETENSORS[found.code], aliases=aliases)


def _is_mask(entry: StoredTensor) -> bool:
    """Whether a tensor is a causal mask, (1, 1, n, n), which older checkpoints hold in any format."""
    return len(entry.shape) == 4 and entry.shape[:2] == (1, 1) and entry.shape[2] == entry.shape[3] > 1


def _reason(name: str, stored: StoredTensor, loaded: Mapping[str, LoadedTensor]) -> str:
    if (name in loaded and not loaded[name].parameter) or stored.code in _PLAIN_INTEGERS or _is_mask(stored):
        return "buffer"
    return _marked(name, _REASONS) or _UNUSED


def note_unused(selection: Selection, folder: Path) -> None:
    """Say in the log how many tensors of a folder's files its model does not use, but for parts that text never uses.

    Such as layers beyond those that its config.json counts.
    """
    if unused := [name for name, reason in selection.left_out if reason == _UNUSED]:
        _log.warning(
            "coevo: note: the model in %r does not use %d of the tensors in its files, such as %r; "
            "is its config.json the model's?", str(folder), len(unused), unused[0],
        )  # fmt: skip


def tower_of(name: str) -> str:
    """`vision tower` or `audio tower` if a tensor belongs to one, which text does not pass; else nothing."""
    return _marked(name, _TOWERS)


def _marked(name: str, reasons: Iterable[tuple[str, Sequence[str]]]) -> str:
    parts = name.lower().split(".")
    return next((reason for reason, marks in reasons for mark in marks if any(p.startswith(mark) for p in parts)), "")


def _refuse_packed(folder: Path, config: Mapping[str, object], stored: Mapping[str, StoredTensor]) -> None:
    expected = "expected float32, bfloat16 or float16 weights: choose an unquantised checkpoint of the model"
    nested = [cast(Mapping[str, object], part) for part in config.values() if isinstance(part, dict)]
    for part in (config, *nested):
        if settings := part.get("quantization_config"):
            method = cast(dict[str, object], settings).get("quant_method") if isinstance(settings, dict) else settings
            raise UserError(f"{str(folder)!r} is quantised ({method or 'quantization_config'}); {expected}")
    if mark := next((name for name in _MARKS_OF_PACKING if (folder / name).is_file()), None):
        raise UserError(f"{str(folder)!r} is quantised ({mark}); {expected}")
    plain = {*FROM_SAFETENSORS, *_PLAIN_INTEGERS, "F64"}
    packed = {name: entry.code for name, entry in stored.items() if entry.code not in plain and not _is_mask(entry)}
    if packed:
        codes = sorted(set(packed.values()))
        raise UserError(
            f"{str(folder)!r} holds packed tensors ({', '.join(codes)}): {shortened(sorted(packed), 3)}; {expected}"
        )


def with_scales(selection: Selection, rules: Iterable[tuple[str, float]]) -> Selection:
    """The selection with a scale for each tensor that a pattern matches; of several matches the last counts.

    Args:
        selection: What to change.
        rules: (glob, scale), the glob matched against names and aliases (`*` also matches dots).

    Raises:
        UserError: If a scale is negative or not finite, or a glob matches nothing.
    """
    scales = {spec.name: spec.scale for spec in selection.tensors}
    for glob, scale in rules:
        if not (math.isfinite(scale) and scale >= 0):
            raise UserError(f"the scale of {glob!r} is {scale!r}, expected a finite number of 0 or more")
        matched = [
            spec.name
            for spec in selection.tensors
            if any(fnmatchcase(name, glob) for name in (spec.name, *spec.aliases))
        ]
        if not matched:
            names = shortened((spec.name for spec in selection.tensors), 3)
            raise UserError(f"no selected tensor matches {glob!r}; there are {names}")
        scales.update(dict.fromkeys(matched, float(scale)))
    return replace(selection, tensors=tuple(replace(spec, scale=scales[spec.name]) for spec in selection.tensors))
