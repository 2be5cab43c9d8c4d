"""The errors a user of coevo can meet; this module imports nothing.

A `CoevoError` is shown as one line on stderr, never as a traceback. Anything else that escapes is a
fault in coevo or in a plugin and keeps its traceback; a `RequestFailedError` becomes a rollout's status.

Wording: what is wrong, the value seen, what was expected or a did-you-mean, and the command or option
that mends it. Lower-case start, no full stop at the end, names in `repr`.
"""


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
