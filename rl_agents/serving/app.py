"""The Ray Serve application: ``serve run rl_agents.serving.app:build checkpoint=runs/NAME``."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, BackpressureConfig
from ray.serve.handle import DeploymentHandle
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from rl_agents.config import Settings
from rl_agents.gateway.answers import PendingRequest
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects import messages, written
from rl_agents.gateway.routes import model_routes, post
from rl_agents.inference.base import EngineSettings
from rl_agents.inference.engines import resolve_engine, run_engine
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import Policy, RemotePolicy
from rl_agents.serving.request_params import read_params
from rl_agents.serving.service import CheckpointRequest, Service
from rl_agents.serving.sessions import SessionRequest, StepRequest
from rl_agents.serving.source import Checkpoint, find_checkpoint, present, served_settings
from rl_agents.web.bodies import BodyT, json_object, read_body
from rl_agents.web.errors import handlers
from rl_agents.web.security import Guard, Keys

logger = logging.getLogger("ray.serve")

STATIC = Path(__file__).parent / "static"
#: The page loads nothing from other servers and cannot be framed.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FILES = {"index.html": "text/html", "app.js": "text/javascript", "style.css": "text/css"}
#: Requests at the gateway in addition to those for the engines: sessions, probes, the page.
OTHER_REQUESTS = 64


@dataclass(frozen=True)
class Api:
    """The routes of a service."""

    service: Service

    def app(self, keys: Keys, max_body_bytes: int) -> Starlette:
        def lifespan(_: Starlette) -> AbstractAsyncContextManager[None]:
            return self.service.running()

        session = "/agent/sessions/{session}"
        routes = [
            *model_routes(self),
            Route("/agent/about", self.about),
            post("/agent/sessions", self.open),
            Route(session, self.observe),
            Route(session, self.close, methods=["DELETE"]),
            post(f"{session}/step", self.step),
            Route("/healthz", self.health),
            Route("/readyz", self.ready),
            post("/admin/checkpoint", self.roll),
            Route("/", self.page),
            Route("/static/{name}", self.page),
        ]
        guard = Middleware(Guard, keys=keys, max_body_bytes=max_body_bytes, write=written)
        errors = handlers(logger, "server's log", written)
        return Starlette(routes=routes, middleware=[guard], exception_handlers=errors, lifespan=lifespan)

    def begin(self, request: Request, dialect: ModuleType, body: bytes) -> tuple[ModelCall, PendingRequest]:
        with self.service.meter.request(dialect.PATH.removeprefix("/v1/").replace("/", "_")) as counting:
            call, params = read_params(dialect.read(json_object(body)))
            call.ignored["model"] += call.model != self.service.name  # every name is answered
            pending = self.service.begin(call, params)
            counting.append(pending)
        return call, pending

    def count(self, request: Request, body: bytes) -> int:
        with self.service.meter.request("count_tokens"):
            return self.service.count_tokens(read_params(messages.read_count(json_object(body)))[0])

    def model(self, request: Request) -> dict[str, Any]:
        return self.service.model()

    async def about(self, request: Request) -> Response:
        return JSONResponse(self.service.about())

    async def open(self, request: Request) -> Response:
        session = await self.service.open_session(await _read(SessionRequest, request))
        return JSONResponse(session.view(), 201)

    async def observe(self, request: Request) -> Response:
        return JSONResponse(self.service.sessions.get(request.path_params["session"]).view())

    async def step(self, request: Request) -> Response:
        action = (await _read(StepRequest, request)).action
        return JSONResponse(await self.service.sessions.step(request.path_params["session"], action))

    async def close(self, request: Request) -> Response:
        self.service.sessions.close(request.path_params["session"])
        return Response(status_code=204)

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        return JSONResponse(await self.service.ready())

    async def roll(self, request: Request) -> Response:
        return JSONResponse(await self.service.roll(await _read(CheckpointRequest, request)))

    async def page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in FILES:
            raise HTTPException(404, "no such file")
        return FileResponse(STATIC / name, media_type=FILES[name], headers=PAGE_HEADERS)


async def _read(kind: type[BodyT], request: Request) -> BodyT:
    """Read the body of a session or admin request; an empty one is ``{}``."""
    body = await request.body()
    return read_body(kind, json_object(body) if body.strip() else {})


class Gateway:
    """The ingress deployment; Serve takes the application from it."""

    def __init__(
        self, options: ServingOptions, settings: Settings, checkpoint: Checkpoint, keys: Keys,
        policy: DeploymentHandle, engine: EngineSettings,
    ) -> None:  # fmt: skip
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        self._keys, self._max_body_bytes = keys, options.max_body_kb * 1024
        checkpoint = present(checkpoint, options.checkpoint)
        self._service = Service(options, settings, checkpoint, RemotePolicy(policy), engine.kind)

    def __serve_build_asgi_app__(self) -> Any:
        return Api(self._service).app(self._keys, self._max_body_bytes)


class Replica(Policy):
    """A policy that finds the newest checkpoint when it starts, since the configured one may have been deleted."""

    def __init__(self, settings: EngineSettings, options: ServingOptions, checkpoint: Checkpoint) -> None:
        checkpoint = find_checkpoint(options.checkpoint) if options.follow else present(checkpoint, options.checkpoint)
        own = replace(settings, model_dir=str(checkpoint.hf_dir))
        super().__init__(own, checkpoint, options.drain_s)


def build(args: Mapping[str, Any]) -> serve.Application:
    """Build the application from keys of the server (`rl_agents.serving.options`) and of the run, as text or values.

    Raises:
        InputError: unknown key, no such checkpoint, an engine that cannot run here, a missing API key.
    """
    options, run_keys = ServingOptions.read(args)
    keys = Keys.from_environment(options.api_key_env, options.admin_key_env)
    checkpoint = find_checkpoint(options.checkpoint)
    settings = served_settings(checkpoint, {**run_keys, "engine": options.engine})
    engine = engine_settings(options, settings, checkpoint)
    replica = serve.deployment(Replica).options(
        name="Policy",
        max_ongoing_requests=options.max_ongoing_requests,
        max_queued_requests=options.max_queued_requests,
        graceful_shutdown_timeout_s=options.request_timeout_s,
        ray_actor_options={"num_cpus": engine.threads, "num_gpus": _gpus(settings)},
        **_replicas(options),
    )
    capacity = options.max_replicas * options.max_ongoing_requests + options.max_queued_requests
    gateway = serve.deployment(serve.ingress()(Gateway)).options(
        name="Gateway",
        max_ongoing_requests=capacity + options.max_sessions + OTHER_REQUESTS,
        max_queued_requests=options.max_queued_requests,
        backpressure_config=BackpressureConfig(status_code=429, retry_after_s=1),
        graceful_shutdown_timeout_s=options.request_timeout_s,
        ray_actor_options={"num_cpus": 0},
    )
    return gateway.bind(options, settings, checkpoint, keys, replica.bind(engine, options, checkpoint), engine)


def engine_settings(options: ServingOptions, settings: Settings, checkpoint: Checkpoint) -> EngineSettings:
    """Return the settings of each replica's engine.

    Raises:
        InputError: the engine cannot run here.
    """
    kind, _ = resolve_engine(settings.engine)
    engine = run_engine(settings, str(checkpoint.hf_dir), kind)
    # `Policy.load` itself waits for running answers; those that take longer continue under the new weights.
    return replace(engine, max_batch=options.max_ongoing_requests, weight_switch="keep", guided=True)


def _replicas(options: ServingOptions) -> dict[str, Any]:
    if options.min_replicas == options.max_replicas:
        return {"num_replicas": options.min_replicas}
    target = options.target_ongoing_requests or max(1, options.max_ongoing_requests // 2)
    replicas = {"min_replicas": options.min_replicas, "max_replicas": options.max_replicas}
    return {"autoscaling_config": AutoscalingConfig(**replicas, target_ongoing_requests=target)}


def _gpus(settings: Settings) -> float:
    """Return the GPUs of a replica, as for engines of a run: ``tensor_parallel`` if torch sees any."""
    import torch

    return settings.gpus_per_engine or (float(settings.tensor_parallel) if torch.cuda.is_available() else 0.0)
