"""What a server of models answers when it refuses or fails, written as the client's dialect does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rl_agents.gateway.dialects import dialect_of
from rl_agents.web.errors import ApiError, http_error

Handler = Callable[[Request, Exception], Awaitable[Response]]


def written(error: ApiError, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of a refusal.

    Args:
        headers: of the request, with names in lower case.
    """
    body: dict[str, Any] = dialect_of(path, headers).error(error)
    return body


def handlers(log: logging.Logger, whose: str) -> dict[Any, Handler]:
    """Return Starlette's handlers by the exception that they handle; what nobody expected goes to ``log``.

    Args:
        whose: log that is, in the answer's words.
    """

    async def on_bug(request: Request, error: Exception) -> Response:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return await _on_api_error(request, ApiError(500, f"internal error; see the {whose}'s log", "internal_error"))

    return {ApiError: _on_api_error, HTTPException: _on_http_error, Exception: on_bug}


async def _on_api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    body = written(error, request.url.path, request.headers)
    return JSONResponse(body, error.status, headers=dict(error.headers()))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = http_error(request.method, request.url.path, error.status_code, error.detail)
    return await _on_api_error(request, problem)
