"""Errors in the form that clients of OpenAI's interface know."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that is not answered.

    Args:
        status: of HTTP.
        message: one line that names the value and the remedy.
        param: name of the field at fault, if it is one.
        code: word for programs.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def body(self) -> dict[str, Any]:
        """The error as JSON."""
        kinds = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error")
        if self.status >= 500:
            kind = "server_error"
        message = " ".join(self.message.split())
        return {"error": {"message": message, "type": kind, "param": self.param, "code": self.code}}


def refused(param: str, message: str) -> ApiError:
    """Return the error for a value that cannot be honoured."""
    return ApiError(400, message, param, "invalid_value")
