"""Writes the templates beside it under a name of the user's; nothing that exists is overwritten."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from coevo.errors import UserError
from coevo.host import consent
from coevo.machine.places import expanded

_PROBLEM_FILES = ("problem.toml", "evaluate.py", "template.py")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_LONGEST = 60


def new_problem(name: str, folder: str | Path = ".", taken: Collection[str] = ()) -> list[Path]:
    """Make the folder `name` of a small problem that runs at once, to be changed into one's own.

    Args:
        name: of the problem and its folder: small letters, digits and underscores.
        folder: where the new folder is made; made too if it is missing.
        taken: names that `--task` takes for parts of coevo rather than for the folder.

    Returns:
        The files written.

    Raises:
        UserError: the name is none or taken, the folder exists, or it cannot be written.
    """
    _check(name, "problem", taken)
    if "-" in name:
        raise UserError(f"problem name {name!r} has a '-'; did you mean {name.replace('-', '_')!r}?")
    target = expanded(folder) / name
    if target.exists() or target.is_symlink():
        raise UserError(f"{str(target)!r} exists already; give another name, or another folder with --folder")
    texts = {target / file: _filled(file, {"name": name}) for file in _PROBLEM_FILES}
    return _write(texts)


def new_plugin(name: str, folder: str | Path = ".", taken: Collection[str] = ()) -> list[Path]:
    """Write the file of a context updater that works with `--plugin`.

    Args:
        name: of the updater; the file is called like it with underscores, the updater with dashes.
        folder: where the file is written; made if it is missing.
        taken: names of parts of coevo, whose options the updater's would be taken for.

    Returns:
        The file written.

    Raises:
        UserError: the name is none or taken, the file exists, or it cannot be written.
    """
    module, option = name.replace("-", "_"), name.replace("_", "-")
    _check(name, "plugin", (), keywords=(module,))
    if option in taken:
        raise UserError(f"{option!r} is the name of a part of coevo (see: coevo plugins); give the plugin another name")
    target = expanded(folder) / f"{module}.py"
    if target.exists() or target.is_symlink():
        raise UserError(f"{str(target)!r} exists already; give another name, or another folder with --folder")
    title = "".join(part.capitalize() for part in module.split("_"))
    return _write({target: _filled("plugin.py", {"option": option, "file": target.name, "class": title})})


def _check(name: str, kind: str, taken: Collection[str], keywords: Collection[str] = ()) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise UserError(
            f"{kind} name {name!r} is none: expected small letters, digits and underscores, a letter first, "
            f"{_LONGEST} at most, such as my_{kind}"
        )
    if any(keyword.iskeyword(word) for word in (name, *keywords)):
        raise UserError(f"{kind} name {name!r} is a word of Python; give another, such as my_{name}")
    if name in taken:
        raise UserError(
            f"{name!r} is the name of a part of coevo (see: coevo plugins), which --task {name} would take; "
            f"give the {kind} another name"
        )


def _filled(file: str, words: Mapping[str, str]) -> str:
    text = files("coevo.tools.scaffold").joinpath("templates", f"{file}.txt").read_text("utf-8")
    return Template(text).substitute(words)


def _write(texts: Mapping[Path, str]) -> list[Path]:
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            # "x": of two that write at once one loses, and is told.
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
            if path.suffix == ".py":
                consent.remember(path, text.encode())
    except OSError as error:
        raise UserError(
            f"{error.filename!r} cannot be written: {error.strerror}; choose another with --folder"
        ) from None
    return list(texts)
