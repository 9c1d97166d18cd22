"""The gateway without HTTP: model calls, sessions, and loading of checkpoints.

A request in any dialect is converted to token ids, and sampled tokens to the pieces that the dialect writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from rl_agents.background import together
from rl_agents.chat.history import in_call_order
from rl_agents.chat.template import ChatOptions, ChatTemplate, load_tokenizer, make_context
from rl_agents.config import Settings
from rl_agents.envs.base import env_spec
from rl_agents.errors import InputError, nearest
from rl_agents.gateway.calls import Delta, ModelAnswer, ModelCall, Piece, Start
from rl_agents.gateway.dialects import chat_completions, model_body, models_body
from rl_agents.gateway.stream_view import Shown, answer_id, opened_thought, written_answer
from rl_agents.inference.base import Completion, EngineError, RequestRefused, Sampling
from rl_agents.serving.metrics import Meter
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import Piece as Sampled
from rl_agents.serving.policy import PolicyClient, Target
from rl_agents.serving.request_params import RequestParams, check_engine, read_params
from rl_agents.serving.sessions import Session, SessionRequest, Sessions
from rl_agents.serving.source import Checkpoint, check_replaces, find_checkpoint, traits
from rl_agents.web.bodies import Body
from rl_agents.web.errors import ApiError, bad_request, public

#: Gets every piece's label and what it adds to an answer.
Tell = Callable[[str, Delta], None]


class CheckpointRequest(Body):
    """``POST /admin/checkpoint``: a folder on the server or a public model in its cache; None: the run's newest one."""

    checkpoint: str | None = Field(None, max_length=4096)


@dataclass(frozen=True)
class Prepared:
    """A checked request for the engine; there is one sampling per choice."""

    call: ModelCall
    params: RequestParams
    prompt_ids: list[int]
    samplings: list[Sampling]
    number: int = field(default_factory=lambda: secrets.randbits(62))
    created: int = field(default_factory=lambda: int(time.time()))

    def start(self, label: str) -> Start:
        return Start(answer_id(self.number), self.created, label, len(self.prompt_ids))


def _thinks(call: ModelCall, template: ChatTemplate) -> bool:
    """Return whether an answer may begin with a thought: its chat template or its prompt mentions the tag."""
    said = (str(template.tokenizer.chat_template), *(message["content"] for message in call.messages))
    return any("<think>" in text for text in said)


logger = logging.getLogger("ray.serve")

#: Seconds within which a ready replica answers, and between two searches for idle sessions.
READY_S, SWEEP_S = 5.0, 10.0
#: Longest pause before the next attempt to load a checkpoint, in seconds.
RETRY_S = 60.0


class Service:
    """Serves one policy. Everything here runs on one event loop."""

    def __init__(
        self, options: ServingOptions, settings: Settings, checkpoint: Checkpoint, client: PolicyClient, kind: str
    ) -> None:
        """Load the tokenizer; ``kind``: of the engines, ``vllm`` or ``torch``. Raises `InputError`: no usable one."""
        self._options, self._settings, self._kind = options, settings, kind
        self.meter = Meter()
        self._client = client
        self._context = make_context(
            settings.context, load_tokenizer(checkpoint.hf_dir), ChatOptions.from_settings(settings)
        )
        self._template, self._name = self._context.template, served_name(options, settings, checkpoint)
        self.sessions = Sessions(options, settings, self._context)
        self._target, self._traits = Target(0, checkpoint), traits(checkpoint)
        #: A message for the model: a first observation of the environment, once there is one.
        self._example = "hello"
        self._rolling = asyncio.Lock()
        self._started = int(time.time())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Adopt the replicas' target, look for newer checkpoints and close idle sessions, inside the block."""
        await self._warm()
        tasks = [asyncio.create_task(self._adopt()), asyncio.create_task(self._sweep())]
        if self._options.follow:
            tasks.append(asyncio.create_task(self._follow()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await self.sessions.close_all()

    # --- model calls ---------------------------------------------------------------------------------------------

    async def answer(self, call: ModelCall, params: RequestParams) -> list[ModelAnswer]:
        """Answer a request, or raise an `ApiError`: 400, 404, 429, 503 or 504."""
        prepared = self._prepare(call, params)
        async with self._in_time():
            return await together(self._answer(prepared, index) for index in range(call.count))

    def stream(self, call: ModelCall, params: RequestParams) -> AsyncGenerator[Piece, None]:
        """Answer a request piece by piece: `Start` with the first token, deltas, then the complete answers."""
        return self._pieces(self._prepare(call, params))

    async def _pieces(self, prepared: Prepared) -> AsyncGenerator[Piece, None]:
        # Sampling runs in one task, since the iterating task may change between pieces.
        heard: asyncio.Queue[Piece | None] = asyncio.Queue()
        begun = False

        def tell(label: str, delta: Delta) -> None:
            nonlocal begun
            if not begun:
                heard.put_nowait(prepared.start(label))
            begun = True
            if delta.content or delta.thoughts or delta.logprobs:
                heard.put_nowait(delta)

        async def sample() -> list[ModelAnswer]:
            try:
                async with self._in_time():
                    return await together(self._answer(prepared, i, tell) for i in range(prepared.call.count))
            finally:
                heard.put_nowait(None)

        work = asyncio.create_task(sample())
        try:
            while (piece := await heard.get()) is not None:
                yield piece
            for answer in await work:
                yield answer
        finally:
            work.cancel()

    async def _answer(self, prepared: Prepared, index: int, tell: Tell | None = None) -> ModelAnswer:
        call, template = prepared.call, self._template
        shown = Shown.of(template, prepared.prompt_ids, call.stop, prepared.params.tools, prepared.params.logprobs)
        label, reason = "", ""
        whole = not (call.stream or call.stop)
        async with aclosing(self._sampled(prepared.prompt_ids, prepared.samplings[index], whole)) as sampled:
            async for piece in sampled:
                label, reason = piece.label, piece.finish_reason
                delta = shown.delta(index, piece.token_ids, piece.logprobs, piece.likeliest, last=bool(reason))
                if tell is not None:
                    tell(label, delta)
                if shown.stopped_by:
                    break
        number, start = prepared.number + index, prepared.start(label)
        return written_answer(shown, call.dialect, number, start, reason, index)

    async def _sampled(
        self, prompt_ids: Sequence[int], sampling: Sampling, whole: bool = True
    ) -> AsyncGenerator[Sampled, None]:
        """Yield an answer piece by piece, or as one piece if ``whole``."""
        self.meter.called(1)
        try:
            if whole:
                yield await self._client.generate(prompt_ids, sampling, self._target)
                return
            async with aclosing(self._client.stream(prompt_ids, sampling, self._target)) as stream:
                async for piece in stream:
                    yield piece
        finally:
            self.meter.called(-1)

    def count_tokens(self, call: ModelCall, params: RequestParams) -> int:
        """Return the length of a request's prompt; see `answer`."""
        return len(self._prompt_ids(call, params))

    def _prepare(self, call: ModelCall, params: RequestParams) -> Prepared:
        """Return how to sample, or raise `ApiError` (400) for a prompt that cannot be rendered or leaves no room."""
        check_engine(params, self._kind)
        prompt = self._prompt_ids(call, params)
        budget, stops, tag = self._budget(call, len(prompt)), self._template.stop_token_ids, ""
        if params.structure is not None:
            tag = params.structure.tag(opened_thought(self._template, prompt), _thinks(call, self._template))
        samplings = [params.sampling(budget, stops, index, tag) for index in range(call.count)]
        return Prepared(call, params, prompt, samplings)

    def _prompt_ids(self, call: ModelCall, params: RequestParams) -> list[int]:
        if self._template.exceeds(call.messages, self._settings.max_model_len):
            raise self._full("the messages are longer")
        try:
            messages, tools = in_call_order(call.messages), [tool.to_openai() for tool in params.tools]
            return self._template.chat_ids(messages, tools, repair=True)
        except InputError as error:
            raise bad_request(str(error), "tools" if params.tools else "messages", "chat_template") from None

    def _budget(self, call: ModelCall, prompt_tokens: int) -> int:
        room = self._settings.max_model_len - prompt_tokens
        if room < 1:
            raise self._full(f"the messages take {prompt_tokens}")
        return min(room, self._options.max_output_tokens or room, call.max_tokens or room)

    def _full(self, found: str) -> ApiError:
        message = f"the context has {self._settings.max_model_len} tokens; {found}"
        return bad_request(message, "messages", "context_length_exceeded")

    def has_model(self, name: str) -> bool:
        """Return whether this is the model's own name; requests with other names are answered, too."""
        return name == self._name

    def models(self) -> dict[str, Any]:
        """Return the list of the one model, in the format of OpenAI's and Anthropic's clients."""
        return models_body(self.model(self._name))

    def model(self, name: str) -> dict[str, Any]:
        """Return the model of that name, or raise an `ApiError` (404)."""
        if not self.has_model(name):
            message = f"the model '{name}' does not exist: {nearest(name, [self._name])}"
            raise ApiError(404, message, "model_not_found", "model")
        more = {"root": self._target.checkpoint.label, "max_model_len": self._settings.max_model_len}
        return {**model_body(name, self._started), **more}

    # --- sessions ------------------------------------------------------------------------------------------------

    async def open_session(self, request: SessionRequest) -> Session:
        """Open a session; see `Sessions.create`."""
        session: Session | None = None

        async def generate(prompt: Sequence[int], sampling: Sampling) -> Completion:
            asked = self.meter.asked("session")
            with asked.counted():
                async with self._in_time():
                    (piece,) = [piece async for piece in self._sampled(prompt, sampling)]
            asked.ended("ok")
            asked.sampled(len(prompt), len(piece.token_ids))
            assert session is not None
            session.label = piece.label
            return Completion(piece.token_ids, piece.logprobs, 0, piece.finish_reason)

        session = await self.sessions.create(request, generate, self._target.checkpoint.label)
        return session

    def about(self) -> dict[str, Any]:
        return {
            "model": self._name,
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
        """Return the served checkpoint.

        Raises:
            ApiError: 503 if no replica answers within `READY_S`.
        """
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
                if not env_spec(self._settings.env).borrows:  # or an agent would start
                    session = await self.open_session(SessionRequest.model_validate({}))
                    self._example = session.episode.answer.observation
                    self.sessions.close(session.id)
        body = {"model": self._name, "messages": [{"role": "user", "content": self._example}], "max_tokens": 1}
        with contextlib.suppress(ApiError):
            await self.answer(*read_params(chat_completions.read(body)))

    async def _adopt(self) -> None:
        """Continue with the replicas' target after a restart of the gateway."""
        while True:
            with contextlib.suppress(EngineError):
                target = await self._client.served()
                if target.number > self._target.number:
                    self._target = target
                return
            await asyncio.sleep(1.0)  # the replicas are still starting

    async def _follow(self) -> None:
        """Load each newer checkpoint; log each new reason of a failure, and try again after ever longer pauses."""
        pause, told, loaded = self._options.follow_s, "", None
        while True:
            await asyncio.sleep(pause)
            try:
                newest = await asyncio.to_thread(find_checkpoint, self._options.checkpoint)
                if newest.hf_dir not in (self._target.checkpoint.hf_dir, loaded):
                    await self._roll(newest)
                    loaded = newest.hf_dir
                pause, told = self._options.follow_s, ""
            except Exception as error:  # of any type: it may pass, or the next checkpoint may be good
                pause, reason = min(2 * pause, max(self._options.follow_s, RETRY_S)), f"{type(error).__name__}: {error}"
                if reason != told:
                    logger.warning("still serving %s, trying again: %s", self._target.checkpoint.label, reason)
                told = reason

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_S, self._options.session_idle_s))
            self.sessions.sweep()
            self.meter.sessions(self.sessions.count)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        limit = self._options.request_timeout_s
        try:
            async with asyncio.timeout(limit):
                yield
        except TimeoutError:
            raise ApiError(504, f"the engine did not finish the answer within {limit:g} s", "timeout") from None
        except RequestRefused as error:
            raise bad_request(str(error), code="unsupported_value") from None
        except EngineError as error:
            raise ApiError(503, str(error), "engine_failed") from None


def served_name(options: ServingOptions, settings: Settings, checkpoint: Checkpoint) -> str:
    if options.model_name:
        return options.model_name
    return checkpoint.label if checkpoint.config_file is None else f"{settings.env}-{settings.algo}"
