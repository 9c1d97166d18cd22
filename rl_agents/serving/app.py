"""The Ray Serve application: ``serve run rl_agents.serving.app:build checkpoint=runs/NAME``."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse
from ray import serve
from ray.exceptions import RayActorError, RayTaskError
from ray.serve.config import AutoscalingConfig, BackpressureConfig
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.exceptions import HTTPException

from rl_agents.config import Settings
from rl_agents.gateway.dialects import DIALECTS, event_stream, ignored_header, messages, primed, written
from rl_agents.inference.base import EngineError, EngineSettings, Sampling
from rl_agents.inference.select import resolve_engine, run_engine
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import Piece, Policy, Target
from rl_agents.serving.request_params import read_params
from rl_agents.serving.service import CheckpointRequest, Service
from rl_agents.serving.sessions import SessionRequest, StepRequest
from rl_agents.serving.source import Checkpoint, find_checkpoint, present, served_settings
from rl_agents.web.bodies import BodyT, json_object, read_body
from rl_agents.web.errors import ApiError, handlers
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
FILES = {"app.js": "text/javascript", "style.css": "text/css"}


def make_api(service: Service, keys: Keys, max_body_bytes: int) -> FastAPI:
    """Build the application around ``service``."""

    def lifespan(_: FastAPI) -> AbstractAsyncContextManager[None]:
        return service.running()

    # FastAPI's own documentation pages load scripts from other servers.
    api = FastAPI(title="rl_agents", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    api.add_middleware(Guard, keys=keys, max_body_bytes=max_body_bytes, write=written)
    for error, handler in handlers(logger, "server's log", written).items():
        api.add_exception_handler(error, handler)
    _add_dialects(api, service)
    _add_sessions(api, service)
    _add_operations(api, service)
    _add_page(api)
    return api


def _add_dialects(api: FastAPI, service: Service) -> None:
    for path, dialect in DIALECTS.items():
        api.post(path)(_ask(service, dialect))

    @api.post(messages.COUNT_PATH)
    async def count(request: Request) -> dict[str, Any]:
        asked = service.meter.asked("count_tokens")
        with asked.counted():
            call, params = read_params(messages.read_count(json_object(await request.body())))
            tokens = service.count_tokens(call, params)
        asked.ended("ok")
        return messages.counted(tokens)

    @api.get("/v1/models")
    async def models() -> dict[str, Any]:
        return service.models()

    @api.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return service.model(name)


def _ask(service: Service, dialect: ModuleType) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def ask(request: Request) -> Response:
        asked = service.meter.asked(dialect.PATH.removeprefix("/v1/").replace("/", "_"))
        with asked.counted():
            call, params = read_params(dialect.read(json_object(await request.body())))
            call.ignored["model"] += not service.has_model(call.model)
            headers = ignored_header(call)
            if not call.stream:
                answers = await service.answer(call, params)
                asked.ended("ok", answers)
                return JSONResponse(dialect.whole(call, answers), headers=headers)
            # A failure before the first piece is still an ordinary HTTP error.
            pieces = asked.listening(await primed(service.stream(call, params)))
        return event_stream(dialect.events(call, pieces), headers)

    return ask


async def _read(kind: type[BodyT], request: Request) -> BodyT:
    """Read the body of a session or admin request; an empty one is ``{}``."""
    body = await request.body()
    return read_body(kind, json_object(body) if body.strip() else {})


def _add_sessions(api: FastAPI, service: Service) -> None:
    @api.get("/agent/about")
    async def about() -> dict[str, Any]:
        return service.about()

    @api.post("/agent/sessions", status_code=201)
    async def create(request: Request) -> dict[str, Any]:
        session = await service.open_session(await _read(SessionRequest, request))
        return session.view()

    @api.get("/agent/sessions/{session_id}")
    async def observe(session_id: str) -> dict[str, Any]:
        return service.sessions.get(session_id).view()

    @api.post("/agent/sessions/{session_id}/step")
    async def step(session_id: str, request: Request) -> dict[str, Any]:
        return await service.sessions.step(session_id, (await _read(StepRequest, request)).action)

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
        return await service.roll(await _read(CheckpointRequest, request))


def _add_page(api: FastAPI) -> None:
    @api.get("/")
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html", media_type="text/html", headers=PAGE_HEADERS)

    @api.get("/static/{name}")
    async def static(name: str) -> FileResponse:
        if name not in FILES:
            raise HTTPException(404, "no such file")
        return FileResponse(STATIC / name, media_type=FILES[name], headers=PAGE_HEADERS)


#: Requests at the gateway in addition to those for the engines: sessions, probes, the page.
OTHER_REQUESTS = 64
#: Guided decoding needs the texts of tokens. Without a backend, vLLM would use that of the first request for all.
GUIDED = {"skip_tokenizer_init": False, "structured_outputs_config": {"backend": "xgrammar"}}
#: Seconds that all replicas together have to load new weights, and to report what they serve.
LOAD_S, SERVED_S = 600.0, 4.0


class RemotePolicy:
    """The replicas behind a Serve handle; see `rl_agents.serving.policy.PolicyClient`."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._stream = handle.options(stream=True)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling, target: Target) -> Piece:
        """Return a complete answer. Raises `ApiError` (429) for a full queue, `EngineError` for a failure."""
        with _serve_errors():
            piece: Piece = await self._handle.generate.remote(prompt_ids, sampling, target)
        return piece

    async def stream(
        self, prompt_ids: Sequence[int], sampling: Sampling, target: Target
    ) -> AsyncGenerator[Piece, None]:
        """Yield an answer piece by piece; see `generate`."""
        pieces: Any = self._stream.stream.remote(prompt_ids, sampling, target)
        try:
            with _serve_errors():
                async for piece in pieces:
                    yield piece
        finally:
            pieces.cancel()

    async def load(self, target: Target) -> None:
        """Load new weights into all replicas at the same time; later replicas get the target from requests.

        Raises:
            InputError: a replica refuses them.
            EngineError: a replica died, or did not load them within `LOAD_S`.
        """
        with _serve_errors():
            await self._handle.broadcast("load", target).results_async(timeout_s=LOAD_S)

    async def served(self) -> Target:
        """Return the newest target that a replica serves; this call does not wait in the queue of a busy replica.

        Raises:
            EngineError: no replica runs, or they do not answer within `SERVED_S`.
        """
        with _serve_errors():
            targets: list[Target] = await self._handle.broadcast("served").results_async(timeout_s=SERVED_S)
        if not targets:
            raise EngineError("no engine replica is running")
        return max(targets, key=lambda target: target.number)


@contextmanager
def _serve_errors() -> Iterator[None]:
    """Convert Serve's errors."""
    try:
        yield
    except BackPressureError:
        raise ApiError(429, "the server is busy; try again in a moment", "overloaded") from None
    except RayTaskError as error:
        raise error.cause from None
    except (RayActorError, DeploymentUnavailableError) as error:
        raise EngineError(f"an engine replica is gone: {type(error).__name__}") from None
    except TimeoutError:
        raise EngineError("the engine replicas did not answer in time") from None


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
        return make_api(self._service, self._keys, self._max_body_bytes)


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
    return application(options, settings, checkpoint, keys)


def application(options: ServingOptions, settings: Settings, checkpoint: Checkpoint, keys: Keys) -> serve.Application:
    engine = engine_settings(options, settings, checkpoint)
    replica = serve.deployment(Replica).options(
        name="Policy",
        max_ongoing_requests=options.max_ongoing_requests,
        max_queued_requests=options.max_queued_requests,
        graceful_shutdown_timeout_s=options.request_timeout_s,
        ray_actor_options={"num_cpus": engine.threads, "num_gpus": _gpus(settings)},
        **_scale(options),
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
    vllm_args = {**engine.vllm_args, **GUIDED} if kind == "vllm" else engine.vllm_args
    return replace(engine, max_batch=options.max_ongoing_requests, weight_switch="keep", vllm_args=vllm_args)


def _scale(options: ServingOptions) -> dict[str, Any]:
    if options.min_replicas == options.max_replicas:
        return {"num_replicas": options.min_replicas}
    target = options.target_ongoing_requests or max(1, options.max_ongoing_requests // 2)
    replicas = {"min_replicas": options.min_replicas, "max_replicas": options.max_replicas}
    return {"autoscaling_config": AutoscalingConfig(**replicas, target_ongoing_requests=target)}


def _gpus(settings: Settings) -> float:
    """Return the GPUs of a replica, as for engines of a run: ``tensor_parallel`` if torch sees any."""
    import torch

    return settings.gpus_per_engine or (float(settings.tensor_parallel) if torch.cuda.is_available() else 0.0)
