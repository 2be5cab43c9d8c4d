"""Results of evaluations on disk, so that a program that some run has evaluated is not evaluated by the next.

A result belongs to a program (its canonical key) and an evaluator (`evaluator_key`): everything that the result could
depend on. Only what would come out again is kept, see `repeatable`. The cache is never needed: whatever is wrong with
it is said once, and from then on there is none.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sqlite3
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from coevo.errors import UserError, did_you_mean
from coevo.machine.places import expanded
from coevo.models.catalogue import cache_folder
from coevo.sandbox import Evaluation

FOLDER_VARIABLE = "COEVO_EVALUATIONS"
_OFF = frozenset({"off", "0", "false", "no", "none"})
_ON = frozenset({"on", "1", "true", "yes"})
MOST_BYTES = 256 << 20
_BUSY_SECONDS = 5.0
_CHECK_EVERY = 64
_TABLE = """
CREATE TABLE IF NOT EXISTS results (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    evaluator TEXT NOT NULL,
    program TEXT NOT NULL,
    result TEXT NOT NULL,
    UNIQUE (evaluator, program)
)"""

# Failures that the program itself brings about each time. A crash, a refused fork or a file that cannot be read may be
# the machine's doing, and so may be running out of time or memory.
_OWN_ERRORS = re.compile(
    r"(ArithmeticError|AssertionError|AttributeError|IndexError|KeyError|LookupError|NameError|NotImplementedError"
    r"|StopIteration|TypeError|UnboundLocalError|ValueError|ZeroDivisionError|[\w.]*AxisError|[\w.]*LinAlgError): "
)
_OF_THE_MACHINE = ("MemoryError", "RecursionError")
_REPEATABLE = frozenset({"ok", "syntax", "no_entry", "import", "invalid_solution", "non_finite"})

# Words for the clock, the system's entropy and addresses. One that is not meant so only costs an evaluation.
_UNSTEADY = frozenset(
    {"time", "datetime", "clock", "perf_counter", "monotonic", "urandom", "getrandom", "secrets", "SystemRandom"}
    | {"uuid", "default_rng", "RandomState", "SeedSequence", "Generator", "PCG64", "MT19937", "Philox", "SFC64"}
    | {"Random", "seed", "id", "object", "hash", "__hash__", "environ", "getpid", "threading", "multiprocessing"}
)


def repeatable(found: Evaluation, code: str) -> bool:
    """Whether `code` would end like this again, on this machine, in another run."""
    if found.status not in _REPEATABLE and not (found.status == "exception" and _OWN_ERRORS.match(found.message)):
        return False
    if found.message.startswith(_OF_THE_MACHINE):
        return False
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return found.status == "syntax"
    return _UNSTEADY.isdisjoint(word for node in nodes for word in _words(node))


def _words(node: ast.AST) -> list[str]:
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [node.attr]
        case ast.alias():
            return node.name.split(".")
        case ast.Constant(value=str(text)):
            return [text]
        case _:
            return []


def default_folder() -> Path | None:
    """Where results are kept: `$COEVO_EVALUATIONS`, else in coevo's cache; None where the variable says `off`.

    Raises:
        UserError: the variable holds a word that is neither, or there is no home folder.
    """
    given = os.environ.get(FOLDER_VARIABLE, "").strip()
    word = given.lower()
    if word in _OFF:
        return None
    if not given or word in _ON:
        return cache_folder() / "evaluations"
    if os.sep not in given and not given.startswith((".", "~")):
        hint = did_you_mean(word, sorted(_ON | _OFF)).removeprefix("; ")
        raise UserError(
            f"the environment variable {FOLDER_VARIABLE} got {given!r} ({hint}); it may also name a folder, such as "
            f"./{given}"
        )
    return expanded(given)


class EvaluationCache:
    """The results in `folder`; may be used by several threads and processes at once."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        """Nothing is opened before it is needed.

        Args:
            folder: made where it is missing, for this user alone.
            most_bytes: of what is kept; when there is more, the oldest quarter goes.
        """
        self.file = folder / "evaluations.sqlite"
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._off = False
        self._puts = 0

    def get(self, evaluator: str, program: str) -> Evaluation | None:
        """What is known of a program, None where nothing is."""
        rows = self._do("SELECT result FROM results WHERE evaluator = ? AND program = ?", evaluator, program)
        if not rows:
            return None
        try:
            return _decoded(json.loads(rows[0][0]))
        except (ValueError, TypeError, KeyError) as error:
            self.turn_off(f"holds what is no result ({type(error).__name__}: {error})")
            return None

    def put(self, evaluator: str, program: str, found: Evaluation) -> None:
        """Keep a result; it replaces what was known of the program."""
        text = json.dumps(_encoded(found), allow_nan=False)
        self._do(
            "INSERT INTO results (evaluator, program, result) VALUES (?, ?, ?) "
            "ON CONFLICT (evaluator, program) DO UPDATE SET result = excluded.result",
            evaluator, program, text,
        )  # fmt: skip
        with self._lock:
            self._puts += 1
            due = self._puts % _CHECK_EVERY == 0
        if due:
            self._shrink()

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def turn_off(self, why: str) -> None:
        """Say why, and do without from here on."""
        with self._lock:
            first, self._off = not self._off, True
        if first:
            print(
                f"coevo: note: the cache of evaluations {str(self.file)!r} {why}; the run goes on without it",
                file=sys.stderr,
            )

    def _do(self, command: str, *values: str) -> list[Any]:
        try:
            with self._lock:
                if self._off:
                    return []
                connection = self._connection = self._connection or self._opened()
                with connection:
                    return connection.execute(command, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            self.turn_off(f"cannot be used ({error})")
            return []

    def _opened(self) -> sqlite3.Connection:
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._check_ours()
        connection = sqlite3.connect(self.file, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            # After a power cut the newest results may be missing, and nothing else.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(_TABLE)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_ours(self) -> None:
        """Refuse results that somebody else may have written, and files that are not what they seem.

        Raises:
            PermissionError: which, and what mends it.
        """
        names = ("", "-wal", "-shm", "-journal")
        found = [(self.file.parent, self.file.parent.stat())]
        for path in (self.file.with_name(self.file.name + name) for name in names):
            with suppress(FileNotFoundError):
                found.append((path, path.lstat()))
        for path, about in found:
            if path != self.file.parent and not stat.S_ISREG(about.st_mode):
                raise PermissionError(f"{str(path)!r} is no ordinary file")
            if about.st_uid not in (os.getuid(), 0):
                raise PermissionError(f"{str(path)!r} is another user's")
            if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise PermissionError(f"others may write to {str(path)!r}; mend it with: chmod go-w {str(path)!r}")

    def _shrink(self) -> None:
        """Drop the oldest quarter where there is too much; the room is used again, so the file stays as it is."""
        pages, free, size = (
            self._do(f"PRAGMA {name}")[0][0] if not self._off else 0
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > self._most_bytes:
            self._do(
                "DELETE FROM results WHERE number <= (SELECT number FROM results ORDER BY number "
                "LIMIT 1 OFFSET (SELECT COUNT(*) / 4 FROM results))"
            )


class Kept:
    """The cache of one problem, for `coevo_heuristics.memory`."""

    def __init__(self, cache: EvaluationCache, identity: Callable[[str], str | None]) -> None:
        """Take a cache.

        Args:
            cache: where results are.
            identity: the evaluator's key of a split, asked once each; None where nothing may be kept.
        """
        self.cache = cache
        self._identity = lru_cache(maxsize=None)(identity)

    def get(self, split: str, program: str) -> Evaluation | None:
        """What is known of a program."""
        evaluator = self._identity(split)
        return None if evaluator is None else self.cache.get(evaluator, program)

    def compare(self, split: str, program: str, code: str, found: Evaluation) -> None:
        """Do without the cache if what it has of a program is not what has just been found; keep that otherwise."""
        known = self.get(split, program)
        if known is None:
            self.put(split, program, code, found)
        elif known.per_instance != found.per_instance and repeatable(found, code):
            self.cache.turn_off("has another result for the seed heuristic than this run; remove it")

    def put(self, split: str, program: str, code: str, found: Evaluation) -> None:
        """Keep a result that would come out again."""
        evaluator = self._identity(split)
        if evaluator is not None and repeatable(found, code):
            self.cache.put(evaluator, program, found)


def _encoded(found: Evaluation) -> dict[str, object]:
    # A float's shortest decimal form is read back to the very same float.
    return {
        "status": found.status,
        "objective": found.objective,
        "per_instance": found.per_instance,
        "message": found.message,
        "raced": found.raced,
        "seen": found.seen,
    }


def _decoded(data: dict[str, Any]) -> Evaluation:
    objective, per_instance = data["objective"], tuple(float(value) for value in data["per_instance"])
    if (objective is None) == (data["status"] == "ok") or (data["status"] == "ok") != bool(per_instance):
        raise ValueError("a result that contradicts itself")
    return Evaluation(
        status=str(data["status"]),
        objective=None if objective is None else float(objective),
        per_instance=per_instance,
        message=str(data["message"]),
        stdout="",
        cpu_seconds=0.0,
        seconds=0.0,
        raced=bool(data["raced"]),
        seen=tuple(float(value) for value in data["seen"]),
    )
