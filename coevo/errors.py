"""The errors a user of coevo can meet; this module imports nothing of coevo.

A `CoevoError` is shown as one line on stderr, never as a traceback. Anything else that escapes is a
fault in coevo or in a plugin and keeps its traceback; a `RequestFailedError` becomes a rollout's status.

Wording: what is wrong, the value seen, what was expected or a did-you-mean, and the command or option
that mends it. Lower-case start, no full stop at the end, names in `repr`.
"""

import difflib
from collections.abc import Sequence


class CoevoError(Exception):
    """Base of everything a user is told in one line. Exit code 1: the run or the check failed."""

    exit_code = 1


class UserError(CoevoError):
    """The user asked for something that cannot be done as asked. Exit code 2."""

    exit_code = 2


class MissingExtraError(UserError):
    """A plugin needs a package that is not installed; the message names the extra that brings it."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the package {package!r}, which is not installed; mend it with: pip install 'coevo[{extra}]'"
        )
        self.package = package
        self.extra = extra


class PluginError(UserError):
    """A plugin is broken: a misspelt hook, a duplicate name, an import that fails."""


class UnknownSplitError(UserError, ValueError):
    """A task has no split of that name."""


class RunError(CoevoError):
    """A run failed for a reason that is not the user's input; what is on disk can be resumed."""


class RequestFailedError(Exception):
    """An engine has tried a request as long as it is worth and gives it up: it is not tried again.

    No `CoevoError`, because it ends nothing but its own rollout, with the status `engine_error`.
    """


class CheckFailedError(CoevoError):
    """A verification (replay, canary, digest) found a difference."""


class RunInterrupted(CoevoError):  # noqa: N818 - an interruption is no error, but it must unwind like one
    """Ctrl-C or SIGTERM. Exit code 130; the run is resumable and the message says how."""

    exit_code = 130


def did_you_mean(word: str, known: Sequence[str], otherwise: str | None = None) -> str:
    """`; did you mean 'x'?`, or where nothing is close `otherwise`, by default the list of what is known."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    if meant := next((name for name in close if _is_slip(word, name)), None):
        return f"; did you mean {meant!r}?"
    if otherwise is not None:
        return otherwise
    return f"; expected one of: {', '.join(sorted(known))}" if known else ""


def _is_slip(word: str, name: str) -> bool:
    """Whether `word` is the beginning of a name, or one that was mistyped: a letter in three is added, lost or another.

    Words of a few letters have half of them in common by chance.
    """
    return name.startswith(word) or _slips(word, name) <= max(len(word), len(name)) // 3


def _slips(word: str, name: str) -> int:
    """How many letters are added, lost, replaced, or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(name) + 1))
    for i, letter in enumerate(word, 1):
        two_before, before, row = before, row, [i]
        for j, other in enumerate(name, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != other)))
            if i > 1 and j > 1 and letter == name[j - 2] and word[i - 2] == other:
                row[j] = min(row[j], two_before[j - 2] + 1)
    return row[-1]
