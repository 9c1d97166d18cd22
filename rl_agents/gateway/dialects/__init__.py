"""The APIs of agents' clients: OpenAI's Chat Completions and Responses, Anthropic's Messages.

Every dialect is a module with four functions: ``read`` a request (an object of `rl_agents.tools.strict_json`), and
write a ``whole`` answer, the ``events`` of a stream, and an ``error``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects import chat_completions, messages, responses
from rl_agents.gateway.dialects.stream import primed
from rl_agents.web.errors import ApiError, http_error

__all__ = ["DIALECTS", "dialect_of", "handlers", "messages", "model_body", "models_body", "primed", "written"]

Handler = Callable[[Request, Exception], Awaitable[Response]]
#: Most names of ignored fields in one response's header.
MAX_TOLD = 40

#: By the path of their requests.
DIALECTS: dict[str, ModuleType] = {module.PATH: module for module in (chat_completions, responses, messages)}


def dialect_of(path: str, headers: Mapping[str, str]) -> ModuleType:
    """Return the dialect of a path's errors; Anthropic's clients send a version with every request.

    Args:
        headers: with names in lower case.
    """
    for start in (messages.PATH, responses.PATH, chat_completions.PATH):
        if path.rstrip("/").endswith(start) or f"{start}/" in path:
            return DIALECTS[start]
    return messages if "anthropic-version" in headers else chat_completions


def model_body(name: str, created: int) -> dict[str, Any]:
    """Describe a model for OpenAI's and Anthropic's clients; ``created``: seconds since 1970."""
    at = datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    openai = {"id": name, "object": "model", "created": created, "owned_by": "rl_agents"}
    return {**openai, "type": "model", "display_name": name, "created_at": at, "lifecycle": "active"}


def models_body(model: Mapping[str, Any]) -> dict[str, Any]:
    """List the one model of a server."""
    ends = {"first_id": model["id"], "last_id": model["id"]}
    return {"object": "list", "data": [model], "has_more": False, **ends}


def written(error: ApiError, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the body of an error, given the request's path and headers (names in lower case)."""
    body: dict[str, Any] = dialect_of(path, headers).error(error)
    return body


def handlers(log: logging.Logger, whose: str) -> dict[Any, Handler]:
    """Return Starlette's handlers by exception; unexpected ones are logged.

    Args:
        whose: names the owner of the log in the answer.
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


def event_stream(events: AsyncIterator[bytes], headers: Mapping[str, str]) -> StreamingResponse:
    own = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type="text/event-stream", headers={**own, **headers})


def ignored_header(call: ModelCall) -> dict[str, str]:
    """Return the response header that lists parts of the request without effect."""
    told = ", ".join(f"{name}={count}" for name, count in sorted((+call.ignored).items())[:MAX_TOLD])
    return {"x-ignored": told.encode("ascii", "replace").decode()} if told else {}
