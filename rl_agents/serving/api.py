"""The HTTP side of the gateway: routes, statuses, server-sent events, and the page."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from starlette.exceptions import HTTPException

from rl_agents.gateway.dialects import (
    DIALECTS,
    IgnoredLog,
    event_stream,
    handlers,
    ignored_header,
    messages,
    primed,
    written,
)
from rl_agents.serving.metrics import Asked
from rl_agents.serving.protocol import CheckpointRequest, SessionRequest, StepRequest, parse
from rl_agents.serving.request_params import read_wishes
from rl_agents.serving.service import Service
from rl_agents.web.bodies import json_object
from rl_agents.web.errors import ApiError
from rl_agents.web.security import Guard, Keys

logger = logging.getLogger("ray.serve")

STATIC = Path(__file__).parent / "static"
#: The page loads nothing from elsewhere, and nobody may frame it.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FILES = {"app.js": "text/javascript", "style.css": "text/css"}


def make_api(service: Service, keys: Keys, max_body_bytes: int) -> FastAPI:
    """Build the application around ``service``."""

    def lifespan(_: FastAPI) -> AbstractAsyncContextManager[None]:
        return service.running()

    # FastAPI's own documentation pages load scripts from elsewhere.
    api = FastAPI(title="rl_agents", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    api.add_middleware(Guard, keys=keys, max_body_bytes=max_body_bytes, write=written)
    for error, handler in handlers(logger, "server").items():
        api.add_exception_handler(error, handler)
    _add_dialects(api, service)
    _add_sessions(api, service)
    _add_operations(api, service)
    _add_page(api)
    return api


def _add_dialects(api: FastAPI, service: Service) -> None:
    log = IgnoredLog(logger)
    for path, dialect in DIALECTS.items():
        api.post(path)(_ask(service, dialect, log))

    @api.post(messages.COUNT_PATH)
    async def count(request: Request) -> dict[str, Any]:
        with _counted(service, "count_tokens") as asked:
            call, wishes = read_wishes(messages.read_count(json_object(await request.body())))
            tokens = service.count_tokens(call, wishes)
            asked.ended("ok")
        return messages.counted(tokens)

    @api.get("/v1/models")
    async def models() -> dict[str, Any]:
        return service.models()

    @api.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return service.model(name)


def _ask(service: Service, dialect: ModuleType, log: IgnoredLog) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def ask(request: Request) -> Response:
        with _counted(service, dialect.PATH.removeprefix("/v1/").replace("/", "_")) as asked:
            call, wishes = read_wishes(dialect.read(json_object(await request.body())))
            call.ignored["model"] += not service.has_model(call.model)
            headers = ignored_header(call)
            log.note(call)
            if not call.stream:
                answers = await service.answer(call, wishes)
                asked.ended("ok", answers)
                return JSONResponse(dialect.whole(call, answers), headers=headers)
            # What fails before the first piece is still an ordinary error.
            pieces = asked.listening(await primed(service.stream(call, wishes)))
        return event_stream(dialect.events(call, pieces), headers)

    return ask


@contextmanager
def _counted(service: Service, api: str) -> Iterator[Asked]:
    """Count a request; what is raised ends it."""
    asked = service.meter.asked(api)
    try:
        yield asked
    except ApiError as problem:
        asked.ended(problem.code)
        raise
    except BaseException as error:
        asked.ended("client_left" if isinstance(error, CancelledError) else "internal_error")
        raise


def _add_sessions(api: FastAPI, service: Service) -> None:
    @api.get("/agent/about")
    async def about() -> dict[str, Any]:
        return service.about()

    @api.post("/agent/sessions", status_code=201)
    async def create(request: Request) -> dict[str, Any]:
        session = await service.open_session(parse(SessionRequest, await request.body()))
        return session.view()

    @api.get("/agent/sessions/{session_id}")
    async def observe(session_id: str) -> dict[str, Any]:
        return service.sessions.get(session_id).view()

    @api.post("/agent/sessions/{session_id}/step")
    async def step(session_id: str, request: Request) -> dict[str, Any]:
        return await service.sessions.step(session_id, parse(StepRequest, await request.body()).action)

    @api.delete("/agent/sessions/{session_id}", status_code=204)
    async def close(session_id: str) -> None:
        service.sessions.close(session_id)


def _add_operations(api: FastAPI, service: Service) -> None:
    @api.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @api.get("/readyz")
    async def readyz() -> dict[str, Any]:
        return await service.ready()

    @api.post("/admin/checkpoint")
    async def roll(request: Request) -> dict[str, Any]:
        return await service.roll(parse(CheckpointRequest, await request.body()))


def _add_page(api: FastAPI) -> None:
    @api.get("/")
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", media_type="text/html", headers=PAGE_HEADERS)

    @api.get("/static/{name}")
    async def static(name: str) -> FileResponse:
        if name not in FILES:
            raise HTTPException(404, "no such file")
        return FileResponse(STATIC / name, media_type=FILES[name], headers=PAGE_HEADERS)
