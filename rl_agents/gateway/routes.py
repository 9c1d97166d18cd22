"""Model calls over HTTP in three dialects: the routes of gateways and servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rl_agents.errors import nearest
from rl_agents.gateway import dialects
from rl_agents.gateway.answers import PendingRequest
from rl_agents.gateway.calls import ModelCall
from rl_agents.web.errors import ApiError

#: nginx's status for a client that has disconnected.
CLIENT_LEFT = 499


class ModelService(Protocol):
    """Answers model calls."""

    def begin(self, request: Request, dialect: ModuleType, body: bytes) -> tuple[ModelCall, PendingRequest]:
        """Read a request and begin to answer it, or raise an `ApiError`."""

    def count(self, request: Request, body: bytes) -> int:
        """Return the length of the prompt in a request of Anthropic's ``count_tokens``, or raise an `ApiError`."""

    def model(self, request: Request) -> dict[str, Any]:
        """Describe the one model (see `dialects.model_body`), or raise an `ApiError`."""


def json_route(
    path: str, answer: Callable[[Request], Coroutine[Any, Any, Any]], method: str = "GET", status: int = 200
) -> Route:
    """Return a route whose ``answer`` is written as JSON, unless it is a response itself."""

    async def endpoint(request: Request) -> Response:
        body = await answer(request)
        return body if isinstance(body, Response) else JSONResponse(body, status)

    return Route(path, endpoint, methods=[method])


def model_routes(service: ModelService) -> list[Route]:
    async def count(request: Request) -> dict[str, Any]:
        return dialects.messages.counted(service.count(request, await request.body()))

    async def models(request: Request) -> dict[str, Any]:
        return dialects.models_body(service.model(request))

    async def model(request: Request) -> dict[str, Any]:
        body, name = service.model(request), request.path_params["name"]
        if name != body["id"]:
            message = f"the model '{name}' does not exist: {nearest(name, [body['id']])}"
            raise ApiError(404, message, "model_not_found", "model")
        return body

    return [
        *(json_route(path, partial(_answer, service, at), "POST") for path, at in dialects.DIALECTS.items()),
        json_route(dialects.messages.COUNT_PATH, count, "POST"),
        json_route("/v1/models", models),
        json_route("/v1/models/{name:path}", model),
    ]


async def _answer(service: ModelService, dialect: ModuleType, request: Request) -> Response:
    call, pending = service.begin(request, dialect, await request.body())
    headers = dialects.ignored_header(call)
    if call.stream:
        return await dialects.event_stream(dialect, call, pending.stream(), headers)
    leaving = asyncio.ensure_future(_left(request))
    try:
        answers = await pending.answers(leaving)
    finally:
        leaving.cancel()
    if not answers:
        return Response(status_code=CLIENT_LEFT)
    return JSONResponse(dialect.whole(call, answers), headers=headers)


async def _left(request: Request) -> None:
    """Return when the client has disconnected, or its connection is broken."""
    with suppress(Exception):
        while (await request.receive())["type"] != "http.disconnect":
            pass
