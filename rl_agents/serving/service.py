"""The server without Ray: its routes, model calls, sessions, and loading of checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from rl_agents.chat.template import ChatOptions, load_tokenizer, make_context
from rl_agents.config import Settings
from rl_agents.envs.base import env_spec
from rl_agents.errors import InputError
from rl_agents.gateway.answers import CallServer, PendingRequest, answering
from rl_agents.gateway.calls import GatewayLimits, ModelAnswer, ModelCall
from rl_agents.gateway.dialects import chat_completions, error_body, messages, model_body
from rl_agents.gateway.routes import json_route, model_routes
from rl_agents.gateway.stream_view import opened_thought
from rl_agents.inference.base import Completion, EngineError, OnTokens, Sampling
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import PolicyReplica, RemotePolicy, Sampled, Target
from rl_agents.serving.request_params import check_engine, of_choice, read_params
from rl_agents.serving.sessions import AgentSession, SessionRequest, Sessions, StepRequest
from rl_agents.serving.source import Checkpoint, check_replaces, find_checkpoint, traits
from rl_agents.tools.structured_output import Structure
from rl_agents.web.bodies import Body, BodyT, json_object, read_body
from rl_agents.web.errors import ApiError, bad_request, handlers, public
from rl_agents.web.security import Guard, Keys

logger = logging.getLogger("ray.serve")

#: Seconds within which a ready replica answers, and between two searches for idle sessions.
READY_S, SWEEP_S = 5.0, 10.0
#: Longest pause before the next attempt to load a checkpoint, in seconds.
RETRY_S = 60.0
STATIC = Path(__file__).parent / "static"
#: The page loads nothing from other servers and cannot be framed.
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
FILES = {"index.html": "text/html", "app.js": "text/javascript", "style.css": "text/css"}


class CheckpointRequest(Body):
    """``POST /admin/checkpoint``: a folder on the server or a public model in its cache; None: the run's newest one."""

    checkpoint: str | None = Field(None, max_length=4096)


class Service(CallServer):
    """Serves one policy. Everything here runs on one event loop."""

    def __init__(
        self, options: ServingOptions, settings: Settings, checkpoint: Checkpoint,
        policy: PolicyReplica | RemotePolicy, kind: str,
    ) -> None:  # fmt: skip
        """Load the tokenizer; ``kind``: of the engines. Raises `InputError`: no usable one."""
        context = make_context(settings.context, load_tokenizer(checkpoint.hf_dir), ChatOptions.from_settings(settings))
        run_name = checkpoint.label if checkpoint.config_file is None else f"{settings.env}-{settings.algo}"
        limits = GatewayLimits(
            max_model_len=settings.max_model_len,
            max_response_tokens=options.max_output_tokens or settings.max_model_len,
            model_name=options.model_name or run_name,
            request_timeout_s=options.request_timeout_s,
        )
        super().__init__(context.template, limits)
        self._options, self._settings, self._policy, self._kind = options, settings, policy, kind
        self.sessions = Sessions(options, settings, context)
        self._target, self._traits = Target(0, checkpoint), traits(checkpoint)
        #: A message for the model: a first observation of the environment, once there is one.
        self._example = "hello"
        self._rolling = asyncio.Lock()

    def app(self, keys: Keys) -> Starlette:
        session = "/agent/sessions/{session}"
        routes = [
            *model_routes(self),
            json_route("/agent/about", self.about),
            json_route("/agent/sessions", self.open, "POST", 201),
            json_route(session, self.observe),
            json_route(session, self.close, "DELETE"),
            json_route(f"{session}/step", self.step, "POST"),
            json_route("/healthz", self.health),
            json_route("/readyz", self.ready),
            json_route("/admin/checkpoint", self.roll, "POST"),
            json_route("/", self.page),
            json_route("/static/{name}", self.page),
        ]
        guard = Middleware(Guard, keys=keys, max_body_bytes=self._options.max_body_kb * 1024, write=error_body)
        errors = handlers(logger, "server's log", error_body)
        return Starlette(
            routes=routes, middleware=[guard], exception_handlers=errors, lifespan=lambda _: self.running()
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Adopt the replicas' target, look for newer checkpoints and close idle sessions, inside the block."""
        await self._warm()
        follow = [self._follow()] if self._options.follow else []
        tasks = [asyncio.create_task(work) for work in (self._adopt(), self._sweep(), *follow)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await self.sessions.close_all()

    # --- model calls ---------------------------------------------------------------------------------------------

    def begin(self, request: Request, dialect: ModuleType, body: bytes) -> tuple[ModelCall, PendingRequest]:
        """See `rl_agents.gateway.routes.ModelService`; every name of a model is answered."""
        call, sampling, structure = read_params(dialect.read(json_object(body)))
        call.ignored["model"] += call.model != self.limits.model_name
        return call, self.answer(call, sampling, structure)

    def answer(self, call: ModelCall, sampling: Sampling, structure: Structure | None) -> PendingRequest:
        """Begin to answer, or raise `ApiError` (400): the prompt cannot be rendered, or too few tokens are left."""
        check_engine(sampling, structure, self._kind)
        prompt, tag = self._prompt_ids(call), ""
        if structure is not None:
            texts = (str(self.template.tokenizer.chat_template), *(message["content"] for message in call.messages))
            thinks = any("<think>" in text for text in texts)
            tag = structure.tag(opened_thought(self.template, prompt), thinks)
        budget, stops = self.budget(call, len(prompt)), self.template.stop_token_ids
        if (call.max_tokens or 0) > (room := self.limits.max_model_len - len(prompt)):
            found = f"at most {room} after a prompt of {len(prompt)} tokens (max_model_len={self.limits.max_model_len})"
            raise bad_request(f"max_tokens={call.max_tokens}: {found}", "max_tokens")
        samplings = [of_choice(sampling, budget, stops, index, tag) for index in range(call.count)]
        pending = PendingRequest(call=call, number=secrets.randbits(62), prompt_tokens=len(prompt), continues=False)
        pending.begin(self._answer(pending, prompt, samplings))
        return pending

    async def _answer(
        self, pending: PendingRequest, prompt_ids: list[int], samplings: Sequence[Sampling]
    ) -> list[ModelAnswer]:
        async def generate(index: int, on_tokens: OnTokens | None) -> Completion:
            async with aclosing(self._sampled(prompt_ids, samplings[index], on_tokens is not None)) as sampled:
                async for label, part in sampled:
                    pending.labels.setdefault(index, label)
                    if on_tokens is None or on_tokens(part.token_ids, part.logprobs, part.likeliest):
                        break
            return part

        return [answer for _, _, answer in await self.sample(pending, prompt_ids, pending.call.tools, generate)]

    async def _sampled(
        self, prompt_ids: Sequence[int], sampling: Sampling, streams: bool
    ) -> AsyncGenerator[Sampled, None]:
        """Yield an answer part by part, or as one part unless it ``streams``."""
        if not streams:
            yield await self._policy.generate(prompt_ids, sampling, self._target)
            return
        async with aclosing(self._policy.stream(prompt_ids, sampling, self._target)) as stream:
            async for part in stream:
                yield part

    def count(self, request: Request, body: bytes) -> int:
        return len(self._prompt_ids(read_params(messages.read_count(json_object(body)))[0]))

    def _prompt_ids(self, call: ModelCall) -> list[int]:
        tools = [tool.to_openai() for tool in call.tools]
        return self.rendered(call.messages, lambda history: self.template.chat_ids(history, tools, repair=True))

    def model(self, request: Request | None = None) -> dict[str, Any]:
        more = {"root": self._target.checkpoint.label, "max_model_len": self.limits.max_model_len}
        return {**model_body(self.limits.model_name, self.created), **more}

    # --- sessions ------------------------------------------------------------------------------------------------

    async def open(self, request: Request) -> dict[str, Any]:
        return (await self._opened(await _read(SessionRequest, request))).view()

    async def _opened(self, request: SessionRequest) -> AgentSession:
        """Open a session; see `Sessions.create`."""
        session: AgentSession | None = None

        async def generate(prompt: Sequence[int], sampling: Sampling) -> Completion:
            async with answering(self._options.request_timeout_s):
                label, completion = await self._policy.generate(prompt, sampling, self._target)
            assert session is not None
            session.label = label
            return replace(completion, policy_version=0)

        session = await self.sessions.create(request, generate, self._target.checkpoint.label)
        return session

    async def observe(self, request: Request) -> dict[str, Any]:
        return self.sessions.get(request.path_params["session"]).view()

    async def step(self, request: Request) -> dict[str, Any]:
        action = (await _read(StepRequest, request)).action
        return await self.sessions.step(request.path_params["session"], action)

    async def close(self, request: Request) -> Response:
        self.sessions.close(request.path_params["session"])
        return Response(status_code=204)

    async def about(self, request: Request) -> dict[str, Any]:
        return {
            "model": self.limits.model_name,
            "checkpoint": self._target.checkpoint.label,
            "env": self._settings.env,
            "context": self._settings.context,
            "sessions": self.sessions.count,
            "max_sessions": self._options.max_sessions,
            "example": self._example,
        }

    async def page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in FILES:
            raise HTTPException(404, "no such file")
        return FileResponse(STATIC / name, media_type=FILES[name], headers=PAGE_HEADERS)

    # --- checkpoints ---------------------------------------------------------------------------------------------

    async def health(self, request: Request) -> dict[str, Any]:
        return {"status": "ok"}

    async def ready(self, request: Request) -> dict[str, Any]:
        """Return the served checkpoint, or raise an `ApiError` (503): no replica answers within `READY_S`."""
        try:
            target = await asyncio.wait_for(self._policy.served(), READY_S)
        except (TimeoutError, EngineError) as error:
            reason = str(error) or f"no replica has answered within {READY_S:g} s"
            raise ApiError(503, f"no engine is ready: {reason}", "not_ready") from None
        return {"status": "ready", "checkpoint": target.checkpoint.label}

    async def roll(self, request: Request) -> dict[str, Any]:
        """Serve another checkpoint of the same model; requests wait meanwhile, and none fails.

        Raises:
            ApiError: 400 if there is none, or it does not fit; 503 if replicas do not answer.
        """
        wanted, started = (await _read(CheckpointRequest, request)).checkpoint, time.monotonic()
        try:
            await self._roll(await asyncio.to_thread(find_checkpoint, wanted or self._options.checkpoint))
        except InputError as error:
            raise bad_request(public(error), "checkpoint") from None
        label, folder = self._target.checkpoint.label, str(self._target.checkpoint.hf_dir)
        return {"checkpoint": label, "path": folder, "seconds": round(time.monotonic() - started, 3)}

    async def _roll(self, checkpoint: Checkpoint) -> None:
        async with self._rolling:
            await asyncio.to_thread(check_replaces, checkpoint, self._traits)
            target = Target.now(checkpoint)
            await self._policy.load(target)
            self._target = target

    async def _warm(self) -> None:
        """Wait until the engine has answered a first observation, so that no client waits for it to start."""
        with contextlib.suppress(ApiError, InputError, TimeoutError):
            async with asyncio.timeout(READY_S):
                if not env_spec(self._settings.env).agent:  # or an agent would start
                    session = await self._opened(SessionRequest.model_validate({}))
                    self._example = session.episode.answer.observation
                    self.sessions.close(session.id)
        hello = [{"role": "user", "content": self._example}]
        body = {"model": self.limits.model_name, "messages": hello, "max_tokens": 1}
        with contextlib.suppress(ApiError):
            await self.answer(*read_params(chat_completions.read(body))).answers()

    async def _adopt(self) -> None:
        """Continue with the replicas' target after a restart of the gateway."""
        while True:
            with contextlib.suppress(EngineError):
                target = await self._policy.served()
                self._target = max(self._target, target, key=lambda target: target.number)
                return
            await asyncio.sleep(1.0)  # the replicas are still starting

    async def _follow(self) -> None:
        """Load each newer checkpoint; log each new reason of a failure, and try again after ever longer pauses."""
        pause, logged, loaded = self._options.follow_s, "", None
        while True:
            await asyncio.sleep(pause)
            try:
                newest = await asyncio.to_thread(find_checkpoint, self._options.checkpoint)
                if newest.hf_dir not in (self._target.checkpoint.hf_dir, loaded):
                    await self._roll(newest)
                    loaded = newest.hf_dir
                pause, logged = self._options.follow_s, ""
            except Exception as error:  # of any type: it may pass, or the next checkpoint may be good
                pause, reason = min(2 * pause, max(self._options.follow_s, RETRY_S)), f"{type(error).__name__}: {error}"
                if reason != logged:
                    logger.warning("still serving %s, trying again: %s", self._target.checkpoint.label, reason)
                logged = reason

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._options.session_idle_s))
            self.sessions.sweep()


async def _read(kind: type[BodyT], request: Request) -> BodyT:
    """Read the body of a session or admin request; an empty one is ``{}``."""
    body = await request.body()
    return read_body(kind, json_object(body) if body.strip() else {})
