"""Errors as OpenAI's API writes them: a status and ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

OVERLOADED = "the server is busy; try again in a moment"


#: The folders of an absolute path; not those of a URL or of a relative path.
_FOLDERS = re.compile(r"(?<![\w.:/~-])/(?:[^/\s'\":,;]+/)+")


def public(message: object) -> str:
    """Return a message without the folders of the server's own files, which clients need not see.

    >>> public("/srv/models/a/config.json: damaged")
    'config.json: damaged'
    """
    return _FOLDERS.sub("", str(message))


class ApiError(Exception):
    """An answer other than success.

    Attributes:
        status: HTTP status.
        message: one sentence for people.
        code: a word for programs.
        param: the request's field that is to blame, if one is.
    """

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": kind(self.status), "param": self.param, "code": self.code}
        return {"error": error}

    def headers(self) -> Mapping[str, str]:
        """Return further headers: how to authenticate, or when to try again."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": "1"} if self.status in (429, 503) else {}


def kind(status: int) -> str:
    """Return OpenAI's ``type`` for a status."""
    if status == 401:
        return "authentication_error"
    if status == 403:
        return "permission_error"
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """A request that no repetition makes right."""
    return ApiError(400, message, code, param)


def http_error(method: str, path: str, status: int, detail: str) -> ApiError:
    """What the router refuses: no such path, no such method.

    >>> http_error("PUT", "/v1/models", 405, "Method Not Allowed").message
    'PUT /v1/models: method not allowed'
    """
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "http_error")
    return ApiError(status, f"{method} {path}: {detail.lower()}", code)


def overloaded() -> ApiError:
    """All engines are busy and the queue is full."""
    return ApiError(429, OVERLOADED, "overloaded")
