"""What an endpoint says of a request that it does not answer, in the form that OpenAI clients read."""

from __future__ import annotations

from coevo.records import Json


class CallLimitError(Exception):
    """An episode asked more than its task's brief allows: the run's budget was planned with that number."""


class ApiError(Exception):
    """A refused request.

    Attributes:
        status: of HTTP.
        message: one line.
        code: for programs, such as `context_length_exceeded`.
        param: the field that is wrong, where one is.
    """

    def __init__(self, status: int, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.message = " ".join(message.split())

    def body(self) -> dict[str, Json]:
        """The answer's JSON."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def headers(self) -> dict[str, str]:
        """Tells OpenAI's own clients not to ask again: the loop has tried already what may help."""
        return {"x-should-retry": "false"}
