"""The gateway without HTTP: model calls, sessions, and loading of checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic import Field

from rl_agents.chat.history import in_call_order
from rl_agents.chat.template import ChatOptions, load_tokenizer, make_context
from rl_agents.config import Settings
from rl_agents.envs.base import env_spec
from rl_agents.errors import InputError
from rl_agents.gateway.answers import PendingRequest, answering, context_full, sample_answers
from rl_agents.gateway.calls import ModelAnswer, ModelCall
from rl_agents.gateway.dialects import chat_completions, model_body
from rl_agents.gateway.stream_view import opened_thought, written_answer
from rl_agents.inference.base import Completion, EngineError, OnTokens, Sampling
from rl_agents.serving.metrics import Meter
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import Policy, RemotePolicy, Sampled, Target
from rl_agents.serving.request_params import RequestParams, check_engine, read_params
from rl_agents.serving.sessions import AgentSession, SessionRequest, Sessions
from rl_agents.serving.source import Checkpoint, check_replaces, find_checkpoint, traits
from rl_agents.web.bodies import Body
from rl_agents.web.errors import ApiError, bad_request, public

logger = logging.getLogger("ray.serve")

#: Seconds within which a ready replica answers, and between two searches for idle sessions.
READY_S, SWEEP_S = 5.0, 10.0
#: Longest pause before the next attempt to load a checkpoint, in seconds.
RETRY_S = 60.0


class CheckpointRequest(Body):
    """``POST /admin/checkpoint``: a folder on the server or a public model in its cache; None: the run's newest one."""

    checkpoint: str | None = Field(None, max_length=4096)


class Service:
    """Serves one policy. Everything here runs on one event loop."""

    def __init__(
        self, options: ServingOptions, settings: Settings, checkpoint: Checkpoint, client: Policy | RemotePolicy,
        kind: str,
    ) -> None:  # fmt: skip
        """Load the tokenizer; ``kind``: of the engines. Raises `InputError`: no usable one."""
        self._options, self._settings, self._client, self._kind = options, settings, client, kind
        self.meter = Meter()
        context = make_context(settings.context, load_tokenizer(checkpoint.hf_dir), ChatOptions.from_settings(settings))
        self._template = context.template
        run_name = checkpoint.label if checkpoint.config_file is None else f"{settings.env}-{settings.algo}"
        self.name, self._started = options.model_name or run_name, int(time.time())
        self.sessions = Sessions(options, settings, context)
        self._target, self._traits = Target(0, checkpoint), traits(checkpoint)
        #: A message for the model: a first observation of the environment, once there is one.
        self._example = "hello"
        self._rolling = asyncio.Lock()

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

    def begin(self, call: ModelCall, params: RequestParams) -> PendingRequest:
        """Begin to answer a request, or raise `ApiError` (400): its prompt cannot be rendered or leaves no room."""
        check_engine(params, self._kind)
        prompt, tag = self._prompt_ids(call), ""
        if params.structure is not None:
            texts = (str(self._template.tokenizer.chat_template), *(message["content"] for message in call.messages))
            thinks = any("<think>" in text for text in texts)
            tag = params.structure.tag(opened_thought(self._template, prompt), thinks)
        budget, stops = self._budget(call, len(prompt)), self._template.stop_token_ids
        samplings = [params.sampling(budget, stops, index, tag) for index in range(call.count)]
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

        try:
            async with answering(self._options.request_timeout_s):
                sampled = await sample_answers(pending, self._template, prompt_ids, pending.call.tools, generate)
        finally:
            pending.deltas.end()
        call, number = pending.call, pending.number
        return [
            written_answer(view, call.dialect, number + index, pending.start(index), part.finish_reason, index)
            for index, (view, part) in enumerate(sampled)
        ]

    async def _sampled(
        self, prompt_ids: Sequence[int], sampling: Sampling, streams: bool
    ) -> AsyncGenerator[Sampled, None]:
        """Yield an answer part by part, or as one part unless it ``streams``."""
        self.meter.called(1)
        try:
            if not streams:
                yield await self._client.generate(prompt_ids, sampling, self._target)
                return
            async with aclosing(self._client.stream(prompt_ids, sampling, self._target)) as stream:
                async for part in stream:
                    yield part
        finally:
            self.meter.called(-1)

    def count_tokens(self, call: ModelCall) -> int:
        """Return the length of a request's prompt; raises as `begin` does."""
        return len(self._prompt_ids(call))

    def _prompt_ids(self, call: ModelCall) -> list[int]:
        if self._template.exceeds(call.messages, self._settings.max_model_len):
            raise context_full(self._settings.max_model_len, "the messages are longer")
        try:
            messages, tools = in_call_order(call.messages), [tool.to_openai() for tool in call.tools]
            return self._template.chat_ids(messages, tools, repair=True)
        except InputError as error:
            raise bad_request(str(error), "tools" if call.tools else "messages", "chat_template") from None

    def _budget(self, call: ModelCall, prompt_tokens: int) -> int:
        room = self._settings.max_model_len - prompt_tokens
        if room < 1:
            raise context_full(self._settings.max_model_len, f"the messages take {prompt_tokens}")
        return min(room, self._options.max_output_tokens or room, call.max_tokens or room)

    def model(self) -> dict[str, Any]:
        """Describe the model in the format of OpenAI's and Anthropic's clients."""
        more = {"root": self._target.checkpoint.label, "max_model_len": self._settings.max_model_len}
        return {**model_body(self.name, self._started), **more}

    # --- sessions ------------------------------------------------------------------------------------------------

    async def open_session(self, request: SessionRequest) -> AgentSession:
        """Open a session; see `Sessions.create`."""
        session: AgentSession | None = None

        async def generate(prompt: Sequence[int], sampling: Sampling) -> Completion:
            began = time.monotonic()
            with self.meter.request("session"):
                async with answering(self._options.request_timeout_s):
                    ((label, completion),) = [part async for part in self._sampled(prompt, sampling, False)]
            self.meter.sampled("session", began, len(prompt), len(completion.token_ids))
            assert session is not None
            session.label = label
            return replace(completion, policy_version=0)

        session = await self.sessions.create(request, generate, self._target.checkpoint.label)
        return session

    def about(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "checkpoint": self._target.checkpoint.label,
            "env": self._settings.env,
            "context": self._settings.context,
            "sessions": self.sessions.count,
            "max_sessions": self._options.max_sessions,
            "example": self._example,
        }

    # --- checkpoints ---------------------------------------------------------------------------------------------

    async def roll(self, request: CheckpointRequest) -> dict[str, Any]:
        """Serve another checkpoint of the same model; requests wait meanwhile, and none fails.

        Raises:
            ApiError: 400 if there is none, or it does not fit; 503 if replicas do not answer.
        """
        started = time.monotonic()
        try:
            await self._roll(await asyncio.to_thread(find_checkpoint, request.checkpoint or self._options.checkpoint))
        except InputError as error:
            raise bad_request(public(error), "checkpoint") from None
        label, folder = self._target.checkpoint.label, str(self._target.checkpoint.hf_dir)
        return {"checkpoint": label, "path": folder, "seconds": round(time.monotonic() - started, 3)}

    async def ready(self) -> dict[str, Any]:
        """Return the served checkpoint, or raise an `ApiError` (503): no replica answers within `READY_S`."""
        try:
            target = await asyncio.wait_for(self._client.served(), READY_S)
        except (TimeoutError, EngineError) as error:
            reason = str(error) or f"no replica has answered within {READY_S:g} s"
            raise ApiError(503, f"no engine is ready: {reason}", "not_ready") from None
        return {"status": "ready", "checkpoint": target.checkpoint.label}

    async def _roll(self, checkpoint: Checkpoint) -> None:
        async with self._rolling:
            await asyncio.to_thread(check_replaces, checkpoint, self._traits)
            target = Target.now(checkpoint)
            await self._client.load(target)
            self._target = target

    async def _warm(self) -> None:
        """Wait until the engine has answered a first observation, so that no client waits for it to start."""
        with contextlib.suppress(ApiError, InputError, TimeoutError):
            async with asyncio.timeout(READY_S):
                if not env_spec(self._settings.env).agent:  # or an agent would start
                    session = await self.open_session(SessionRequest.model_validate({}))
                    self._example = session.episode.answer.observation
                    self.sessions.close(session.id)
        body = {"model": self.name, "messages": [{"role": "user", "content": self._example}], "max_tokens": 1}
        with contextlib.suppress(ApiError):
            await self.begin(*read_params(chat_completions.read(body))).answers()

    async def _adopt(self) -> None:
        """Continue with the replicas' target after a restart of the gateway."""
        while True:
            with contextlib.suppress(EngineError):
                target = await self._client.served()
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
            self.meter.set("sessions_open", self.sessions.count)
