"""Which files of a model folder hold its weights, where every engine has to read the same ones.

transformers prefers `model.safetensors` to an index and reads whole files; vLLM prefers the index and reads every
safetensors file where there is none. A folder that they would read differently is refused, whoever reads it.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from coevo.errors import UserError
from coevo.files import mark_of, read_text

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_EXPLICIT = "transformers_weights"
_READ = (".jinja", ".json", ".model", ".safetensors", ".txt")
"""Endings of the files that engines read."""
_KINDS = (
    (stat.S_ISDIR, "folder"),
    (stat.S_ISFIFO, "named pipe"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def weight_files(folder: Path) -> dict[str, str]:
    """The file of each tensor by name as the index says; empty where there is one file and no index.

    Reads no safetensors file.

    Raises:
        UserError: the folder holds no safetensors checkpoint, or one that is not whole, or that engines would read
            differently; the message names the files.
    """
    try:
        _refuse_other_than_files(folder)
    except OSError as error:
        raise UserError(f"cannot read the model folder {str(folder)!r}: {error.strerror or error}") from None
    if not (folder / INDEX).is_file() and not (folder / SINGLE).is_file():
        raise UserError(_nothing_to_open(folder))
    places = _indexed(folder) if (folder / INDEX).is_file() else {}
    _refuse_doubts(folder, set(places.values()) or {SINGLE})
    return places


def _refuse_other_than_files(folder: Path) -> None:
    """Refuse what is no file but is called like one that engines read: reading a pipe would never end."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.suffix in _READ and (is_one := kind(path)):
            raise UserError(f"{str(path)!r} {is_one}; expected a file: fetch the model again")


def kind(path: Path) -> str:
    """What stands under a name where a file is expected, such as `is a folder`; empty for a file, or for nothing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return f"is a link to {os.readlink(path)!r}, which is not there" if path.is_symlink() else ""
    except OSError as error:
        if error.errno == errno.ELOOP:
            return f"is a link to {os.readlink(path)!r} that leads back to itself"
        return f"cannot be read ({error.strerror})"
    if stat.S_ISREG(mode):
        return ""
    return next((f"is a {name}" for is_one, name in _KINDS if is_one(mode)), "is no file")


def _indexed(folder: Path) -> dict[str, str]:
    index = folder / INDEX
    wanted = read_json(index).get("weight_map")
    if not isinstance(wanted, dict) or not wanted:
        raise UserError(f"{str(index)!r} has no weight_map")
    places = {str(name): str(file) for name, file in cast(dict[str, object], wanted).items()}
    named = sorted(set(places.values()))
    if outside := [file for file in named if Path(file).name != file]:
        raise UserError(f"{str(index)!r} names files outside its folder: {outside}")
    if gone := [file for file in named if not (folder / file).is_file()]:
        raise UserError(f"{str(index)!r} names files that are not there: {shortened(gone, 3)}; fetch the model again")
    return places


def _refuse_doubts(folder: Path, read: set[str]) -> None:
    """Refuse what makes an engine read other files than `read`, or read them otherwise."""
    where = repr(str(folder))
    alone = read == {SINGLE}
    if not alone and (folder / SINGLE).is_file():
        raise UserError(
            f"{where} holds {SINGLE!r}, which transformers loads, and {INDEX!r}, whose files vLLM loads: "
            f"move the one that is not the model out of the folder"
        )
    if others := sorted(path.name for path in folder.glob("*.safetensors") if path.name not in read):
        named = repr(SINGLE) if alone else f"the files that {INDEX!r} names"
        raise UserError(
            f"{where} holds {shortened(others, 3)} beside {named}, which not every engine leaves out: "
            "move what is not the model out of the folder"
        )
    if (folder / _ADAPTER).is_file():
        raise UserError(
            f"{where} holds an adapter ({_ADAPTER}), which transformers adds to the weights and vLLM does not: "
            "merge it into the model, or move it out of the folder"
        )
    config = folder / "config.json"
    explicit = read_json(config).get(_EXPLICIT) if config.is_file() else None
    if explicit is not None and explicit != (SINGLE if (folder / SINGLE).is_file() else INDEX):
        raise UserError(
            f"{str(config)!r} names the weights that transformers loads ({_EXPLICIT} = {explicit!r}), which vLLM does "
            f"not: expected {SINGLE!r} or {INDEX!r} and no such entry"
        )
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.jinja")]):
        if mark := mark_of(path):
            raise UserError(
                f"{str(path)!r} begins with the byte-order mark of {mark}, which transformers does not read: "
                "save it as UTF-8 without the mark"
            )


def _nothing_to_open(folder: Path) -> str:
    expected = f"expected {SINGLE!r} or {INDEX!r} in float32, bfloat16 or float16"
    if not folder.is_dir():
        return f"there is no model folder {str(folder)!r}; {expected} in it"
    names = sorted(path.name for path in folder.iterdir())
    if packed := [name for name in names if name.endswith(".gguf")]:
        return f"{str(folder)!r} holds a packed GGUF model ({packed[0]}); {expected}: coevo model pull converts it"
    if pickled := [name for name in names if name.endswith((".bin", ".pt", ".pth"))]:
        return f"{str(folder)!r} holds pickled weights ({pickled[0]}); {expected}"
    if other := [name for name in names if name.endswith(".safetensors")]:
        return f"{str(folder)!r} holds {shortened(other, 3)} and no file that says what is in which; {expected}"
    return f"{str(folder)!r} holds no weights; {expected}"


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in a file.

    Raises:
        UserError: If there is none in it.
    """
    try:
        found = json.loads(read_text(path))
    except RecursionError:
        raise UserError(f"cannot read {str(path)!r} as JSON: it is nested too deeply") from None
    except ValueError as error:
        raise UserError(f"cannot read {str(path)!r} as JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{str(path)!r} holds a {type(found).__name__}, expected a JSON object")
    return cast(dict[str, object], found)


def text_part(config: Mapping[str, object]) -> Mapping[str, object]:
    """The part of a config.json that describes the text model: a table of its own where there are towers beside it."""
    inner = config.get("text_config")
    return cast(dict[str, object], inner) if isinstance(inner, dict) and inner else config


def shortened(names: Iterable[str], limit: int = 5) -> str:
    """Names for a one-line message: the first few, quoted, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - limit} more" if len(listed) > limit else ""
    return ", ".join(repr(name) for name in listed[:limit]) + more


def check_tensors(folder: Path, places: Mapping[str, str], held: Mapping[str, Iterable[str]]) -> None:
    """Refuse an index that does not say exactly what its files hold: engines read whole files.

    Args:
        folder: with the index, for the message.
        places: the file of each tensor, as the index says.
        held: the tensors of each file.

    Raises:
        UserError: which tensors.
    """
    index = str(folder / INDEX)
    if missing := sorted(name for name, file in places.items() if name not in held[file]):
        raise UserError(f"{index!r} names tensors that their files do not hold: {shortened(missing)}")
    if extra := sorted({name for file, names in held.items() for name in names if places.get(name) != file}):
        raise UserError(
            f"{index!r} does not say what its files hold: {shortened(extra)} lie in files that it does not name for "
            "them, and engines load whole files"
        )
