"""Python files of a user, run exactly as they were read.

Python itself runs bytecode that lies beside a file, in `__pycache__`, and takes its word for what it was compiled from.
In a folder from elsewhere that is code which nobody has seen, so it is never looked at here.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path

from coevo.errors import UserError
from coevo.files import read_regular

MOST_FILES = 1000
"""Of what a file may import from beside it."""
_COMPILED = tuple(importlib.machinery.EXTENSION_SUFFIXES)


class Exactly(importlib.machinery.SourceFileLoader):
    """Runs what was read, and no bytecode."""

    def __init__(self, name: str, path: str, content: bytes) -> None:
        super().__init__(name, path)
        self._content = content

    def get_code(self, fullname: str) -> types.CodeType:
        """The code of what was read."""
        return self.source_to_code(self._content, self.path)


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file as it was read, with the modules beside it that it imports.

    Attributes:
        path: of the file.
        content: its bytes.
        beside: name of a file in its folder → its bytes.
    """

    path: Path
    content: bytes
    beside: Mapping[str, bytes]

    @classmethod
    def read(cls, path: Path) -> Source:
        """Read a file and what it imports from beside it.

        Raises:
            OSError: it, or what it imports, cannot be read or is no regular file.
            UserError: it imports more than `MOST_FILES` from beside it.
        """
        content = read_regular(path)
        return cls(path, content, _beside(path, content))

    @property
    def signature(self) -> bytes:
        """What it is known again by."""
        lines = (f"{name} {hashlib.sha256(code).hexdigest()}\n" for name, code in sorted(self.beside.items()))
        return self.content + "".join(lines).encode()

    def run(self, name: str) -> types.ModuleType:
        """Import it as the module `name`.

        Raises:
            UserError: a module beside it has a name that another one has already.
            Exception: whatever the file raises.
        """
        if self.beside:
            _check_names(self.path, self.beside)
            sys.meta_path.insert(0, _Beside(self.path.resolve().parent, self.beside))
        loader = Exactly(name, str(self.path), self.content)
        spec = importlib.util.spec_from_file_location(name, self.path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        # `dataclass` and others look a class's module up.
        sys.modules[name] = module
        loader.exec_module(module)
        return module


def _beside(path: Path, content: bytes) -> dict[str, bytes]:
    """The modules beside a file that it imports, and that these import: name of a file → its bytes.

    What is installed goes first, so that nothing in a folder takes the place of a library. Of a package all is taken.

    Raises:
        UserError: they are more than `MOST_FILES`.
    """
    folder = path.resolve().parent
    found: dict[str, bytes] = {}
    looked: set[str] = set()
    ahead = [content]
    while ahead:
        for name in _imported(ahead.pop()) - looked:
            looked.add(name)
            if _is_installed(name, folder):
                continue
            for file in _files_of(folder, name):
                if len(found) == MOST_FILES:
                    raise UserError(
                        f"{str(path)!r} imports {name!r} from beside it, and these are more than {MOST_FILES} files; "
                        "move it into a folder of its own, or install what it imports"
                    )
                if file.resolve() != path.resolve():
                    code = found[file.relative_to(folder).as_posix()] = read_regular(file, None)
                    ahead += [code] if file.suffix == ".py" else []
    return found


def _imported(content: bytes) -> set[str]:
    """Top-level names of what a source imports, wherever in it; none where it is no Python."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def _is_installed(name: str, folder: Path) -> bool:
    if name in sys.stdlib_module_names or name in sys.builtin_module_names:
        return True
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != folder]
    spec = importlib.machinery.PathFinder.find_spec(name, elsewhere)
    return spec is not None and spec.origin is not None  # a mere folder of that name is no module


def _files_of(folder: Path, name: str) -> Iterator[Path]:
    for file in sorted(folder.glob(f"{name}.*")):
        if file.suffix == ".py" or file.name.endswith(_COMPILED):
            yield file
    if (folder / name).is_dir():
        for file in sorted((folder / name).rglob("*")):
            if file.is_file() and (file.suffix == ".py" or file.name.endswith(_COMPILED)):
                yield file


def _check_names(path: Path, here: Mapping[str, bytes]) -> None:
    folder = path.resolve().parent
    for name in here:
        top = name.partition("/")[0].partition(".")[0]
        loaded = getattr(sys.modules.get(top), "__file__", None)
        if loaded and not Path(loaded).resolve().is_relative_to(folder):
            raise UserError(
                f"{str(path)!r} imports {top!r} from beside it, and another {top!r} is loaded already, {loaded!r}; "
                "rename one"
            )


class _Beside(MetaPathFinder):
    """Finds modules beside a file, before Python looks for their bytecode."""

    def __init__(self, folder: Path, files: Mapping[str, bytes]) -> None:
        self._folder, self._files = folder, files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        stem = fullname.replace(".", "/")
        for file, inner in ((f"{stem}/__init__.py", [str(self._folder / stem)]), (f"{stem}.py", None)):
            if file in self._files:
                place = str(self._folder / file)
                return importlib.util.spec_from_file_location(
                    fullname,
                    place,
                    loader=Exactly(fullname, place, self._files[file]),
                    submodule_search_locations=inner,
                )
        return None
