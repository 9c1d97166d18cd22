"""The HTTP side of the gateway: routes, statuses, server-sent events, and the page."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException

from rl_agents.serving.protocol import ChatRequest, CheckpointRequest, SessionRequest, StepRequest, parse
from rl_agents.serving.service import Service
from rl_agents.web.errors import ApiError, http_error
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

T = TypeVar("T")


def make_api(service: Service, keys: Keys, max_body_bytes: int) -> FastAPI:
    """Build the application around ``service``."""

    def lifespan(_: FastAPI) -> AbstractAsyncContextManager[None]:
        return service.running()

    # FastAPI's own documentation pages load scripts from elsewhere.
    api = FastAPI(title="rl_agents", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    api.add_middleware(Guard, keys=keys, max_body_bytes=max_body_bytes)
    api.add_exception_handler(ApiError, _on_api_error)
    api.add_exception_handler(HTTPException, _on_http_error)
    api.add_exception_handler(Exception, _on_bug)
    _add_openai(api, service)
    _add_sessions(api, service)
    _add_operations(api, service)
    _add_page(api)
    return api


def _add_openai(api: FastAPI, service: Service) -> None:
    @api.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        body = parse(ChatRequest, await request.body())
        if not body.stream:
            return JSONResponse(await service.chat(body))
        return await _events(service.chat_stream(body))

    @api.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": service.models()}

    @api.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        for entry in service.models():
            if entry["id"] == name:
                return entry
        raise ApiError(404, f"the model '{name}' does not exist", "model_not_found", "model")


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


async def _events(chunks: AsyncGenerator[dict[str, Any], None]) -> Response:
    """Stream chunks as server-sent events. What fails before the first one is still an ordinary error."""
    first = await anext(chunks)

    async def events() -> AsyncIterator[str]:
        async with aclosing(chunks):
            try:
                yield _event(first)
                async for chunk in chunks:
                    yield _event(chunk)
            except ApiError as error:
                yield _event(error.body())
            yield "data: [DONE]\n\n"

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"


async def _on_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, headers=dict(error.headers()))


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = http_error(request.method, request.url.path, error.status_code, error.detail)
    return await _on_api_error(request, problem)


async def _on_bug(request: Request, error: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return await _on_api_error(request, ApiError(500, "internal error; see the server's log", "internal_error"))
