"""Errors in the format of OpenAI's API: a status and ``{"error": {"message", "type", "param", "code"}}``."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

#: Returns the body of an error, given the request's path and headers (names in lower case).
Write = Callable[["ApiError", str, Mapping[str, str]], Mapping[str, Any]]
NO_HEADERS: Mapping[str, str] = MappingProxyType({})

#: The folders of an absolute path; not those of a URL or of a relative path.
_FOLDERS = re.compile(r"(?<![\w.:/~-])/(?:[^/\s'\":,;]+/)+")


def public(message: object) -> str:
    """Return a message without the folders of the server's files, which clients do not need to see.

    >>> public("/srv/models/a/config.json: damaged")
    'config.json: damaged'
    """
    return _FOLDERS.sub("", str(message))


class ApiError(Exception):
    """An unsuccessful answer.

    Attributes:
        status: HTTP status.
        message: one sentence for people.
        code: a word for programs.
        param: the field of the request that caused it, if any.
    """

    def __init__(self, status: int, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param

    def body(self) -> dict[str, Any]:
        error = {"message": self.message, "type": kind(self.status), "param": self.param, "code": self.code}
        return {"error": error}

    def headers(self) -> Mapping[str, str]:
        """Return additional headers: how to authenticate, or when to try again."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        return {"Retry-After": "1"} if self.status in (429, 503) else {}


def kind(status: int) -> str:
    """Return OpenAI's ``type`` for a status."""
    named = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
    return named.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """Return the error for a request that fails however often it is repeated."""
    return ApiError(400, message, code, param)


def handlers(log: logging.Logger, owner: str, write: Write, further: Mapping[str, str] = NO_HEADERS) -> dict[Any, Any]:
    """Return Starlette's handlers by exception; unexpected ones are logged.

    Args:
        owner: where the log is, for the answer.
        further: headers of every answer.
    """

    async def on_api_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        body = write(error, request.url.path, request.headers)
        return JSONResponse(body, error.status, headers={**further, **error.headers()})

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        message = f"{request.method} {request.url.path}: {error.detail.lower()}"
        return await on_api_error(request, ApiError(error.status_code, message, code))

    async def on_bug(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return await on_api_error(request, ApiError(500, f"internal error; see the {owner}", "internal_error"))

    return {ApiError: on_api_error, HTTPException: on_http_error, Exception: on_bug}
