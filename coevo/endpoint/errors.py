"""What an endpoint says of a request that it does not answer, in the form that OpenAI clients read."""

from __future__ import annotations

from coevo.records import Json

_LONGEST = 1000
"""Characters of a message: what somebody sent comes back in it, and may be megabytes."""


class CallLimitError(Exception):
    """An episode asked more than its task's brief allows: the run's budget was planned with that number."""


class ApiError(Exception):
    """A refused request.

    Attributes:
        status: of HTTP.
        message: one line.
        code: for programs, such as `context_length_exceeded`.
        param: the field that is wrong, where one is.
        again: seconds after which to ask again, None where no waiting helps.
    """

    def __init__(
        self, status: int, message: str, code: str | None = None, param: str | None = None, again: int | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.again = status, code, param, again
        line = " ".join(message.split())
        self.message = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"

    def body(self) -> dict[str, Json]:
        """The answer's JSON."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": kind,
                "param": self.param and self.param[:100],
                "code": self.code,
            }
        }

    def headers(self) -> dict[str, str]:
        """Tells OpenAI's own clients whether to ask again; mostly the loop has tried already what may help."""
        if self.again is not None:
            return {"x-should-retry": "true", "retry-after": str(self.again)}
        return {"x-should-retry": "false"}


def busy(why: str) -> ApiError:
    """A refusal for now: 503, and the client is told to ask again."""
    return ApiError(503, f"this server has too much to do: {why}; ask again in a second", "busy", again=1)
