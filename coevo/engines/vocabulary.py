"""A model folder's tokenizer, and whether its tokens are those of the model: found out without the weights."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from coevo.errors import UserError
from coevo.weights.configuration import GENERATION, blamed, configuration, generation, quietly, words
from coevo.weights.parts import read_json

_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Files about tokens in which the tokens are not."""
_EXPECTED = "expected tokenizer.json, or tokenizer.model, or vocab.json with merges.txt"


def tokenizer_of(folder: Path) -> Any:
    """The tokenizer of a model folder, as transformers reads it.

    Raises:
        UserError: the folder holds none, or one that transformers does not read, or no configuration of a model.
    """
    if not _files(folder):
        raise UserError(
            f"the model folder {str(folder)!r} holds no tokenizer; {_EXPECTED}: copy it from the model that this one "
            "was made of"
        )
    configuration(folder)  # transformers looks into it for the kind of tokenizer
    for path in sorted(folder.glob("*.json")):
        if path.name in _SETTINGS or path.name == "tokenizer.json":
            read_json(path)  # a file that is no JSON is named here
    try:
        with quietly():
            tokenizer = _read(folder)
    except Exception as error:  # noqa: BLE001 - whatever a broken file makes of it is the user's to mend
        settings = _SETTINGS[0]
        if (folder / settings).is_file() and (entry := blamed(folder, _read, error, settings)):
            raise UserError(f"{entry}, which transformers does not take: {words(error)}") from None
        files = ", ".join(_files(folder))
        raise UserError(
            f"transformers cannot read the tokenizer of {str(folder)!r} ({files}): {words(error)}"
        ) from None
    if not len(tokenizer):
        raise UserError(f"the tokenizer of {str(folder)!r} has no tokens; {_EXPECTED} of the model")
    return tokenizer


def _read(folder: Path) -> Any:
    library: Any = importlib.import_module("transformers")
    tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # Whether a prompt fits is for the engine to find; the library would say on the screen that it ends in errors.
    getattr(tokenizer, "deprecation_warnings", {})["sequence-length-is-longer-than-the-specified-maximum"] = True
    tokenizer("a", add_special_tokens=False)  # of some mistakes it says nothing before
    return tokenizer


def check_vocabulary(tokenizer: Any, folder: Path, rows: int, prompt: Iterable[int]) -> None:
    """Refuse a tokenizer that gives tokens which the model has no embedding of.

    Tokens that were added to a vocabulary, such as the one in place of a picture, may lie beyond: texts seldom hold
    them.

    Args:
        tokenizer: of the folder.
        folder: of the model.
        rows: of the model's embedding.
        prompt: the tokens of a prompt such as the model is asked, all of which it must have.

    Raises:
        UserError: how many tokens there are, and how many the model has.
    """
    added = set(tokenizer.added_tokens_decoder)
    beyond = {i: token for token, i in tokenizer.get_vocab().items() if i >= rows and i not in added}
    beyond |= {i: str(tokenizer.convert_ids_to_tokens(i)) for i in prompt if i >= rows}
    if beyond:
        first = min(beyond)
        raise UserError(
            f"the tokenizer of {str(folder)!r} is not the model's: {len(beyond)} of its {len(tokenizer)} tokens, such "
            f"as {beyond[first]!r} ({first}), lie beyond the embedding's {rows} rows; copy the tokenizer from the "
            "model that this one was made of"
        )


def turn_ends(tokenizer: Any, folder: Path, rows: int) -> frozenset[int]:
    """The tokens that end a turn: all that the folder's configurations and its tokenizer name, and the model has.

    Args:
        tokenizer: of the folder.
        folder: of the model.
        rows: of the model's embedding.

    Raises:
        UserError: there is none, or something that is no token's number.
    """
    found: set[int] = set()
    whole = configuration(folder)
    configs = {GENERATION: generation(folder), "config.json": whole}
    sources = {**configs, "text configuration": whole.get_text_config(decoder=True), "tokenizer": tokenizer}
    for name, source in sources.items():
        value: Any = getattr(source, "eos_token_id", None)
        ids = cast(list[Any], value) if isinstance(value, list | tuple) else [] if value is None else [value]
        if not all(type(token) is int for token in ids):
            raise UserError(
                f"the model folder {str(folder)!r} has eos_token_id = {value!r:.60} in its {name}; expected the "
                "number of a token, or a list of them"
            )
        found.update(token for token in ids if 0 <= token < rows)
    if not found:
        raise UserError(f"{str(folder)!r} names no token that ends a turn; expected eos_token_id of 0 to {rows - 1}")
    return frozenset(found)


def _files(folder: Path) -> list[str]:
    """Names of files that hold tokens."""
    return sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in _SETTINGS
        and (path.name.startswith(("tokenizer.", "vocab.", "tekken.")) or path.suffix in (".model", ".tiktoken"))
    )
