"""The gateway over HTTP: model calls in three dialects, and ``/rl`` for sessions and rewards.

A session is named by its key (``Authorization: Bearer`` or ``x-api-key``), by the path (``/s/SESSION/v1/...``), or by
both, which must agree then. By the path alone it is served to its own machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import ModuleType
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from rl_agents.gateway import operations
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Sent
from rl_agents.gateway.dialects import (
    DIALECTS,
    IgnoredLog,
    event_stream,
    handlers,
    ignored_header,
    messages,
    model_body,
    models_body,
    primed,
    written,
)
from rl_agents.gateway.gateway import Gateway
from rl_agents.gateway.operations import OnEnd, Service, body_of
from rl_agents.tools.strict_json import canonical
from rl_agents.web.errors import ApiError
from rl_agents.web.listening import listening
from rl_agents.web.security import Guard, Keys, digest, is_loopback

logger = logging.getLogger("rl_agents.gateway")

MAX_BODY_BYTES = 32 * 2**20
RETRIES = "x-stainless-retry-count"
#: What nginx writes for a client that left.
CLIENT_LEFT = 499

T = TypeVar("T")


def make_app(
    gateway: Gateway, admin: str = "", on_end: OnEnd | None = None, local: bool = True, max_body_bytes: int = 0
) -> Any:
    """Build the ASGI application; ``admin`` is the SHA-256 of the admin key."""
    service = Service(gateway, admin, on_end, local)
    log = IgnoredLog(logger)
    asked = [Route(path, _ask(service, dialect, log), methods=["POST"]) for path, dialect in DIALECTS.items()]
    model_routes = [
        *asked,
        Route(messages.COUNT_PATH, _count(service), methods=["POST"]),
        Route("/v1/models", _models(service)),
        Route("/v1/models/{name:path}", _model(service)),
    ]
    routes = [*model_routes, *operations.routes(service), Mount("/s/{session}", routes=model_routes)]
    app = Starlette(routes=routes, exception_handlers=handlers(logger, "gateway"))
    return Guard(app, Keys(), max_body_bytes or MAX_BODY_BYTES, local=local, write=written)


def _ask(service: Service, dialect: ModuleType, log: IgnoredLog) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def ask(request: Request) -> Response:
        session = service.session(request)
        data = await body_of(request)
        call: ModelCall = dialect.read(data)
        sent, headers = _sent(request, dialect.PATH, data), ignored_header(call)
        log.note(call)
        if call.stream:
            pieces = await primed(service.gateway.stream(session, call, sent))
            return event_stream(dialect.events(call, pieces), headers)
        answers: list[ModelAnswer] | None = await _while_connected(request, service.gateway.answer(session, call, sent))
        if answers is None:
            return Response(status_code=CLIENT_LEFT)
        return JSONResponse(dialect.whole(call, answers), headers=headers)

    return ask


def _count(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def count(request: Request) -> Response:
        session = service.session(request)
        call = messages.read_count(await body_of(request))
        return JSONResponse(messages.counted(service.gateway.count_tokens(session, call)))

    return count


def _models(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def models(request: Request) -> Response:
        service.session(request)
        return JSONResponse(models_body([service.gateway.limits.model_name], service.gateway.created))

    return models


def _model(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def model(request: Request) -> Response:
        service.session(request)
        name = request.path_params["name"]
        if name != service.gateway.limits.model_name:
            raise ApiError(404, f"the model {name!r} does not exist", "model_not_found", "model")
        return JSONResponse(model_body(name, service.gateway.created))

    return model


def _sent(request: Request, path: str, data: Mapping[str, Any]) -> Sent:
    """Return how a request came. The two ways to name a session do not make it another request."""
    retry = request.headers.get(RETRIES, "")
    text = f"{path}\n{canonical(data)}"
    return Sent(hashlib.sha256(text.encode()).hexdigest(), int(retry) if retry.isdecimal() else -1)


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Await work; None when the client leaves before it is done."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for pending in (task, leaving):
            pending.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def serving(
    gateway: Gateway, admin_key: str = "", host: str = "127.0.0.1", port: int = 0, on_end: OnEnd | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> AsyncIterator[str]:  # fmt: skip
    """Serve a gateway on the current event loop; yields its address, without ``/v1``.

    Args:
        admin_key: opens sessions over HTTP; empty: nobody does.
        port: 0: a free one.

    Raises:
        OSError: the address cannot be listened on.
    """
    app = make_app(gateway, digest(admin_key) if admin_key else "", on_end, is_loopback(host), max_body_bytes)
    async with listening(app, host, port, "gateway server") as address:
        yield address
