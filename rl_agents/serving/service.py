"""What the gateway does, apart from HTTP: chats, sessions, and the exchange of checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from rl_agents.chat.context import load_tokenizer, make_context
from rl_agents.engines.base import Completion, EngineError, Sampling
from rl_agents.errors import InputError
from rl_agents.serving.chat import ChatModel, answer, chunks, prepare
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import PolicyClient, Target
from rl_agents.serving.protocol import ChatRequest, CheckpointRequest, SessionRequest
from rl_agents.serving.session import Session
from rl_agents.serving.sessions import Sessions
from rl_agents.serving.source import Checkpoint, check_replaces, find_checkpoint
from rl_agents.settings import Settings
from rl_agents.web.errors import ApiError, bad_request, public

logger = logging.getLogger("ray.serve")

#: Seconds within which a replica that is ready says so.
READY_S = 5.0
SWEEP_S = 10.0


class Service:
    """One policy, served. Everything here runs on one event loop."""

    def __init__(
        self, options: ServingOptions, settings: Settings, checkpoint: Checkpoint, client: PolicyClient
    ) -> None:
        """Load the tokenizer.

        Args:
            options: the server's keys.
            settings: the run's.
            checkpoint: what the replicas start with.
            client: the replicas.

        Raises:
            InputError: no usable tokenizer.
        """
        self._options, self._settings, self._client = options, settings, client
        self._context = make_context(settings.context, load_tokenizer(checkpoint.hf_dir))
        self._model = ChatModel(
            served_name(options, settings, checkpoint),
            self._context.template,
            settings.max_model_len,
            options.max_output_tokens,
            options.max_choices,
        )
        self.sessions = Sessions(options, settings, self._context)
        self._target = Target(0, checkpoint)
        self._rolling = asyncio.Lock()
        self._started = int(time.time())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Adopt what the replicas serve, look for newer checkpoints and close idle sessions, until the end."""
        tasks = [asyncio.create_task(self._adopt()), asyncio.create_task(self._sweep())]
        if self._options.follow:
            tasks.append(asyncio.create_task(self._follow()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            self.sessions.close_all()

    # --- OpenAI's API --------------------------------------------------------------------------------------------

    async def chat(self, request: ChatRequest) -> dict[str, Any]:
        """Answer a chat.

        Raises:
            ApiError: 400, 404, 429, 503 or 504, as the message says.
        """
        async with self._in_time():
            return await answer(prepare(request, self._model), self._client, self._target)

    async def chat_stream(self, request: ChatRequest) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the chunks of an answer; see `chat`."""
        parts = chunks(prepare(request, self._model), self._client, self._target, self._in_time())
        async with aclosing(parts) as stream:
            async for part in stream:
                yield part

    def models(self) -> list[dict[str, Any]]:
        """Return the one model in OpenAI's form."""
        return [
            {
                "id": self._model.name,
                "object": "model",
                "created": self._started,
                "owned_by": "rl_agents",
                "root": self._target.checkpoint.label,
                "max_model_len": self._model.max_model_len,
            }
        ]

    # --- sessions ------------------------------------------------------------------------------------------------

    async def open_session(self, request: SessionRequest) -> Session:
        """Open a session; see `Sessions.create`."""
        session: Session | None = None

        async def generate(prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
            async with self._in_time():
                piece = await self._client.generate(prompt_ids, sampling, self._target)
            assert session is not None
            session.label = piece.label
            return Completion(piece.token_ids, piece.logprobs, 0, piece.finish_reason)

        session = await self.sessions.create(request, generate, self._target.checkpoint.label)
        return session

    def about(self) -> dict[str, Any]:
        """Return what a person needs to open a session."""
        return {
            "model": self._model.name,
            "checkpoint": self._target.checkpoint.label,
            "environments": self._options.allowed_envs(self._settings.env),
            "options": self._options.allowed_options(),
            "context": self._settings.context,
            "sessions": self.sessions.count,
            "max_sessions": self._options.max_sessions,
        }

    # --- checkpoints ---------------------------------------------------------------------------------------------

    async def roll(self, request: CheckpointRequest) -> dict[str, Any]:
        """Serve another checkpoint of the same model; requests wait meanwhile, and none fails.

        Raises:
            ApiError: 400 when there is none, or it does not fit; 503 when replicas do not answer.
        """
        started = time.monotonic()
        try:
            await self._roll(await asyncio.to_thread(find_checkpoint, request.checkpoint or self._options.checkpoint))
        except InputError as error:
            raise bad_request(public(error), "checkpoint") from None
        label, folder = self._target.checkpoint.label, str(self._target.checkpoint.hf_dir)
        return {"checkpoint": label, "path": folder, "seconds": round(time.monotonic() - started, 3)}

    async def ready(self) -> dict[str, Any]:
        """Return what is served.

        Raises:
            ApiError: 503 when no replica says so within `READY_S`.
        """
        try:
            target = await asyncio.wait_for(self._client.served(), READY_S)
        except (TimeoutError, EngineError) as error:
            reason = str(error) or f"no replica has answered within {READY_S:g} s"
            raise ApiError(503, f"no engine is ready: {reason}", "not_ready") from None
        return {"status": "ready", "checkpoint": target.checkpoint.label}

    async def _roll(self, checkpoint: Checkpoint) -> None:
        async with self._rolling:
            await asyncio.to_thread(check_replaces, checkpoint, self._target.checkpoint)
            target = Target.now(checkpoint)
            await self._client.load(target)
            self._target = target

    async def _adopt(self) -> None:
        """After a restart of the gateway: go on with what the replicas were told before."""
        while True:
            with contextlib.suppress(EngineError):
                target = await self._client.served()
                if target.number > self._target.number:
                    self._target = target
                return
            await asyncio.sleep(1.0)  # the replicas are still starting

    async def _follow(self) -> None:
        """Roll in the newest checkpoint; a broken one is reported once and tried again when there is another."""
        refused: Path | None = None
        while True:
            await asyncio.sleep(self._options.follow_s)
            try:
                newest = await asyncio.to_thread(find_checkpoint, self._options.checkpoint)
                if newest.hf_dir not in (self._target.checkpoint.hf_dir, refused):
                    refused = newest.hf_dir
                    await self._roll(newest)
            except (InputError, ApiError, EngineError) as error:
                logger.warning("still serving %s: %s", self._target.checkpoint.label, error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._options.session_idle_s))
            self.sessions.sweep()

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        """Limit the time of an answer, and give its errors a status."""
        limit = self._options.request_timeout_s
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise ApiError(504, f"the engine did not finish the answer within {limit:g} s", "timeout") from None
        except EngineError as error:
            raise ApiError(503, str(error), "engine_failed") from None


def served_name(options: ServingOptions, settings: Settings, checkpoint: Checkpoint) -> str:
    """Return the model's name in the API."""
    if options.model_name:
        return options.model_name
    return checkpoint.label if checkpoint.config_file is None else f"{settings.env}-{settings.algo}"
