"""Loads a problem's `evaluate.py`, which the author's process and the sandbox share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from coevo.errors import UserError
from coevo.files import check_source
from coevo.host.source import Source

_FUNCTIONS = ("instances", "solve", "objective")
_OPTIONAL = ("bound", "work")


class Problem(Protocol):
    """The three functions that an `evaluate.py` defines.

    `solve` runs in a process of its own, beside that of the candidate. It need not refuse a bad answer: it may return
    it, and `objective` refuses it. It raises `FloatingPointError` for a number that is not finite.

    Optional, for races (`coevo.sandbox.racing`): `bound(instance) -> float`, which no solution of the instance
    can beat, in the objective's own direction. And for limits `work(instance) -> float`, in any unit: how much longer
    a heuristic may take for an instance than for another.
    """

    def instances(self, split: str, **options: object) -> list[object]:
        """The instances of `split`, the same ones at each call; `ValueError` if there is no such split."""
        ...

    def solve(self, function: Callable[..., object], instance: object) -> object:
        """Let the candidate's `function` solve `instance`; the solution must fit in JSON.

        The function is in another process: it takes and gives numbers, text, numpy arrays and containers of them, as
        copies.
        """
        ...

    def objective(self, solution: object, instance: object) -> float:
        """Check `solution`, as it comes out of JSON, and value it; `ValueError` says why it is not feasible."""
        ...


def load_problem(file: Path) -> Problem:
    """Import the problem in `file`.

    Raises:
        UserError: there is no such file, it lacks one of the three functions, or its import fails.
    """
    if not file.is_file():
        raise UserError(f"no problem at {str(file)!r}; expected an evaluate.py")
    module = import_file(file, "coevo_problem", "problem ")
    missing = [function for function in _FUNCTIONS if not callable(getattr(module, function, None))]
    if missing:
        raise UserError(f"problem {str(file)!r} defines no function {', '.join(map(repr, missing))}")
    if "__getattr__" in vars(module):
        raise UserError(
            f"problem {str(file)!r} defines __getattr__, by which it has whatever is asked for; take it out"
        )
    for name in _OPTIONAL:
        if not callable(getattr(module, name, len)):
            raise UserError(
                f"problem {str(file)!r}: {name} is {vars(module)[name]!r}; expected a function of an instance, or none"
            )
    return cast(Problem, module)


def import_file(file: Path, prefix: str, what: str = "") -> ModuleType:
    """Import a file of a problem's folder.

    Args:
        file: which is there.
        prefix: of the module's name; the folder's comes after it.
        what: it is called in a complaint, with a space behind it.

    Raises:
        UserError: it is no Python file or no UTF-8, or its import fails.
    """
    check_source(file)
    name = f"{prefix}_{file.resolve().parent.name}"
    try:
        return Source.read(file).run(name)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(f"{what}{str(file)!r} cannot be imported: {type(error).__name__}: {error}") from error


def load_instances(problem: Problem, file: Path, split: str, options: Mapping[str, object]) -> list[object]:
    """Build the instances of `split`.

    Raises:
        UserError: the problem has no such split or option, or none of its instances, or its `instances` fails.
    """
    try:
        instances = list(problem.instances(split, **options))
    except (ValueError, TypeError) as error:
        raise UserError(f"problem {str(file)!r}, split {split!r}: {error}") from error
    except (Exception, SystemExit) as error:
        said = f"{type(error).__name__}: {error}"
        raise UserError(f"problem {str(file)!r}, split {split!r}: `instances` raises {said}") from error
    if not instances:
        raise UserError(f"problem {str(file)!r} has no instances in split {split!r}")
    return instances
