"""A folder's config.json as transformers understands it: a model without its weights, or the entry that is to blame.

What transformers says of a wrong entry are often Python's words about what it made of it. Which entry it is, is found
by leaving out one after the other, or making it 1, until it works.
"""

from __future__ import annotations

import copy
import importlib
import json
import logging
import re
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from coevo.errors import UserError
from coevo.weights.parts import read_json

_COUNTS = (
    (re.compile(r"(num|n)_(hidden_|decoder_|encoder_)?layers?"), 1, 1_000),
    (re.compile(r"(num|n)_(\w+_)?(experts|heads?|labels|blocks)"), 0, 100_000),
)
"""Entries that transformers makes so many things of before it looks at the weights, and what a model may have."""
GENERATION = "generation_config.json"
_TAIL = re.compile(r" (Model type should be one of|Errors: |Should have a `model_type` key|This could be because).*")
_HEAD = re.compile(r"^((Class v|V)alidation error for (field|validator) '\w+': )?(\w+Error: )?")


def empty_model(folder: Path) -> Any:
    """Transformers' text model of a folder on torch's meta device.

    Raises:
        UserError: there is none; says which entry of config.json is to blame, where it is one.
    """
    return _tried(folder, _built)


def configuration(folder: Path) -> Any:
    """Transformers' reading of a folder's config.json.

    Raises:
        UserError: as `empty_model`.
    """
    return _tried(folder, _configuration)


def generation(folder: Path) -> Any:
    """Transformers' reading of a folder's generation_config.json; None where there is none.

    Raises:
        UserError: it makes nothing of it; says which entry is to blame, where it is one.
    """
    if not (folder / GENERATION).is_file():
        return None

    def read(place: Path) -> Any:
        return importlib.import_module("transformers").GenerationConfig.from_pretrained(place, local_files_only=True)

    return _tried(folder, read, GENERATION)


def asked(folder: Path) -> None:
    """Ask a model without weights for its answer to four tokens; raises what transformers raises."""
    torch = importlib.import_module("torch")
    with torch.inference_mode(), quietly():
        _built(folder).eval()(input_ids=torch.zeros((1, 4), dtype=torch.long, device="meta"), use_cache=False)


def vocabulary(folder: Path) -> int:
    """Rows of the embedding of a folder's text model.

    Raises:
        UserError: as `empty_model`.
    """
    return int(configuration(folder).get_text_config(decoder=True).vocab_size)


def _check_entries(folder: Path) -> None:
    """Refuse counts in config.json that would keep transformers busy for ever, and an architecture that is no name.

    Raises:
        UserError: which entry; or config.json is none.
    """
    config = folder / "config.json"
    data = read_json(config)
    if not isinstance(kind := data.get("model_type", ""), str):
        raise UserError(f"{_entry(config, ('model_type',), kind)}; expected the name of an architecture")
    for path in _paths(data):
        value = _at(data, path)
        for name, least, most in _COUNTS:
            if name.fullmatch(path[-1]) and isinstance(value, int | float) and not least <= value <= most:
                raise UserError(f"{_entry(config, path, value)}; expected a number of {least} to {most}")


def blamed(folder: Path, attempt: Callable[[Path], object], error: Exception, file: str = "config.json") -> str:
    """The entry of a file without which `attempt` does not fail: file, name and value; empty if there is none.

    Args:
        folder: of the model.
        attempt: raises with this folder; is given folders that differ in this file only.
        error: what it raised: entries that it names are looked at first.
        file: of the folder, a JSON object.
    """
    config = folder / file
    data, said = read_json(config), str(error)

    def rank(path: tuple[str, ...]) -> tuple[bool, bool, int]:
        return path[-1] not in said, str(_at(data, path)) not in said, -len(path)

    if _succeeds(attempt, config, data):  # then nothing can be found out in this way
        return ""
    for path in sorted(_paths(data), key=rank):
        without, least = copy.deepcopy(data), copy.deepcopy(data)
        del _at(without, path[:-1])[path[-1]]
        _at(least, path[:-1])[path[-1]] = 1  # fits any size, where the usual value may not
        if _succeeds(attempt, config, without) or _succeeds(attempt, config, least):
            return _entry(config, path, _at(data, path))
    return ""


def _succeeds(attempt: Callable[[Path], object], file: Path, data: Mapping[str, object]) -> bool:
    """Whether it does with the folder of `file` as it would be with `data` in this file."""
    with tempfile.TemporaryDirectory(prefix="coevo-config-") as place:
        for other in file.parent.iterdir():
            (Path(place) / other.name).symlink_to(other.absolute())
        (Path(place) / file.name).unlink()
        (Path(place) / file.name).write_text(json.dumps(data), encoding="utf-8")
        try:
            with quietly():
                attempt(Path(place))
        except Exception:  # noqa: BLE001 - it is not this entry, or not this one alone
            return False
    return True


def words(error: Exception) -> str:
    """What transformers says, in a line without its lists of all that there is."""
    said = _HEAD.sub("", _TAIL.sub("", " ".join(str(error).split()))).strip()
    return said[:300] or type(error).__name__


@contextmanager
def quietly() -> Generator[None]:
    """No progress bars and no chatter from transformers; its errors are exceptions anyway."""
    says: Any = importlib.import_module("transformers").utils.logging
    level, bars = says.get_verbosity(), says.is_progress_bar_enabled()
    says.set_verbosity(logging.ERROR)
    says.disable_progress_bar()
    try:
        yield
    finally:
        says.set_verbosity(level)
        if bars:
            says.enable_progress_bar()


def _tried(folder: Path, make: Callable[[Path], Any], file: str = "config.json") -> Any:
    _check_entries(folder)
    try:
        with quietly():
            return make(folder)
    except Exception as error:  # noqa: BLE001 - whatever a broken folder makes of it is the user's to mend
        if entry := blamed(folder, make, error, file):
            raise UserError(f"{entry}, which transformers does not take: {words(error)}") from None
        if file != "config.json":
            raise UserError(f"transformers cannot read {str(folder / file)!r}: {words(error)}") from None
        raise UserError(f"transformers knows no text model in {str(folder)!r}: {words(error)}") from None


def _configuration(folder: Path) -> Any:
    library: Any = importlib.import_module("transformers")
    return library.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def _built(folder: Path) -> Any:
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    config = _configuration(folder)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def _paths(data: Mapping[str, object]) -> Iterator[tuple[str, ...]]:
    """Entries of a configuration and of the tables in it."""
    for key, value in data.items():
        yield (key,)
        if isinstance(value, dict):
            yield from ((key, inner) for inner in cast(dict[str, object], value))


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _entry(config: Path, path: tuple[str, ...], value: object) -> str:
    shown = repr(value)
    return f"{str(config)!r} has {'.'.join(path)} = {shown[:60]}{' …' if len(shown) > 60 else ''}"
