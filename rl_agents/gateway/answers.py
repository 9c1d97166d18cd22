"""The core of gateways and servers: a request's prompt and budget, its answers, and the streams of their text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rl_agents.background import together
from rl_agents.chat.history import in_call_order
from rl_agents.chat.messages import Message
from rl_agents.chat.template import ChatTemplate
from rl_agents.errors import InputError
from rl_agents.gateway.calls import Delta, GatewayLimits, ModelAnswer, ModelCall, Start, StreamPart
from rl_agents.gateway.stream_view import StreamView, answer_id, written_answer
from rl_agents.inference.base import Completion, EngineError, Likeliest, OnTokens, RequestRefused
from rl_agents.tools.calls import Tool
from rl_agents.web.errors import ApiError, bad_request

RenderedT = TypeVar("RenderedT")
CONTEXT_FULL = "context_length_exceeded"

#: Samples the answer with this index. The callback, if there is one, gets its tokens while they are sampled; then the
#: last part of the answer is enough as the result.
Generate = Callable[[int, OnTokens | None], Awaitable[Completion]]


class DeltaLog:
    """The deltas of a request's answers, for any number of readers, each of which gets all from the beginning."""

    def __init__(self, ended: bool = False) -> None:
        self._deltas: list[Delta] = []
        self._ended, self._news = ended, asyncio.Event()

    def add(self, delta: Delta) -> None:
        self._deltas.append(delta)
        self._notify()

    def end(self) -> None:
        self._ended = True
        self._notify()

    def _notify(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def read(self) -> AsyncIterator[Delta]:
        number = 0
        while True:
            while number < len(self._deltas):
                number += 1
                yield self._deltas[number - 1]
            if self._ended:
                return
            await self._news.wait()


@dataclass(eq=False, kw_only=True)
class PendingRequest:
    """A running or answered request.

    Attributes:
        number: of its first answer, from which the ids for clients derive.
        task: makes the answers.
        continues: if its client disconnects, sampling continues, for a retry.
        labels: of the weights, by index of the answer, once an answer has tokens.
        delivered: a client got the complete answers.
        broken: a client disconnected before the end.
        created: seconds since 1970.
    """

    call: ModelCall
    number: int
    prompt_tokens: int
    task: asyncio.Future[list[ModelAnswer]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    continues: bool = True
    labels: dict[int, str] = field(default_factory=dict)
    deltas: DeltaLog = field(default_factory=DeltaLog)
    delivered: bool = False
    broken: bool = False
    created: int = field(default_factory=lambda: int(time.time()))

    def begin(self, work: Coroutine[Any, Any, list[ModelAnswer]]) -> None:
        """Start to answer, in a task of its own, since clients may disconnect."""
        self.task = asyncio.create_task(work, name=f"model call {self.number}")
        # A failure must not reach the event loop if no client waits for it.
        self.task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.task.add_done_callback(lambda done: self.deltas.end())

    def call_id(self, index: int) -> int:
        """Return the number of an answer, from which the ids of its tool calls derive."""
        return self.number + index

    def start(self, index: int = -1) -> Start:
        """Return the beginning of an answer; without ``index``, of the stream."""
        label = self.labels.get(index) or next(iter(self.labels.values()), "")
        return Start(answer_id(self.number), self.created, label, self.prompt_tokens)

    async def answers(self, *leaving: asyncio.Future[None]) -> list[ModelAnswer]:
        """Wait for the answers, or return none if ``leaving`` is done before. Raises `ApiError`."""
        awaited: list[asyncio.Future[Any]] = [self.task, *leaving]
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self.task.done():
                self._leave()
        if not self.task.done() or self.task.cancelled():
            return []
        answers, self.delivered = self.task.result(), True
        return answers

    async def stream(self) -> AsyncGenerator[StreamPart, None]:
        """Yield `Start` with the first text, then deltas, then the complete answers. Raises `ApiError`."""
        # Until the first text, a failure can be an HTTP status, which SDKs retry.
        started = whole = False
        try:
            async for delta in self.deltas.read():
                if not started:
                    yield self.start()
                started = True
                yield delta
            answers = await asyncio.shield(self.task)
            if not started:
                yield Start(answers[0].id, answers[0].created, answers[0].label, answers[0].prompt_tokens)
            for answer in answers:
                yield answer
            whole = self.delivered = True
        finally:
            if not whole:
                self._leave()

    def _leave(self) -> None:
        self.broken = True
        if not self.continues:
            self.task.cancel()


class CallServer:
    """What gateways and servers share; they differ in what they sample from, and in what they record.

    Attributes:
        created: start of this server, seconds since 1970.
    """

    def __init__(self, template: ChatTemplate, limits: GatewayLimits) -> None:
        self.template, self.limits, self.created = template, limits, int(time.time())

    def rendered(self, messages: Sequence[Message], render: Callable[[list[Message]], RenderedT]) -> RenderedT:
        """Return what ``render`` makes of a history, or raise `ApiError` (400): too long, or it cannot be rendered."""
        ordered = in_call_order(messages)
        if self.template.exceeds(ordered, self.limits.max_model_len):
            raise self._context_full("the messages are longer")
        try:
            return render(ordered)
        except InputError as error:
            raise bad_request(str(error), "messages", "chat_template") from None

    def budget(self, call: ModelCall, prompt_tokens: int, least: int = 1) -> int:
        """Return the most tokens of an answer, or raise an `ApiError` (400): less than ``least`` is left."""
        room = self.limits.max_model_len - prompt_tokens
        if room < least:
            raise self._context_full(f"the prompt has {prompt_tokens}")
        return min(room, self.limits.max_response_tokens, call.max_tokens or room)

    def _context_full(self, found: str) -> ApiError:
        return bad_request(f"the context has {self.limits.max_model_len} tokens; {found}", "messages", CONTEXT_FULL)

    async def sample(
        self, pending: PendingRequest, prompt_ids: Sequence[int], tools: Sequence[Tool], generate: Generate
    ) -> list[tuple[StreamView, Completion, ModelAnswer]]:
        """Sample all answers of a request concurrently; its streams get their text meanwhile.

        Raises:
            ApiError: 504 without an answer in time, 400 for a request that the engine refuses, 503 for a failed engine.
        """

        async def answer(index: int) -> tuple[StreamView, Completion, ModelAnswer]:
            view = StreamView.of(self.template, prompt_ids, pending.call.stop, tools, pending.call.logprobs is not None)
            completion = await _sampled(pending, index, view, generate)
            start, reason = pending.start(index), completion.finish_reason
            return (
                view,
                completion,
                written_answer(view, pending.call.dialect, pending.call_id(index), start, reason, index),
            )

        async with answering(self.limits.request_timeout_s):
            if pending.call.count == 1:
                return [await answer(0)]
            return await together(answer(index) for index in range(pending.call.count))


async def _sampled(pending: PendingRequest, index: int, view: StreamView, generate: Generate) -> Completion:
    """Sample an answer; a stop string ends it at the token that completes the string."""
    call, read = pending.call, 0

    def on_tokens(
        token_ids: Sequence[int], logprobs: Sequence[float], likeliest: Sequence[Likeliest] = (), last: bool = False
    ) -> bool:
        nonlocal read
        read += len(token_ids)
        delta = view.delta(index, token_ids, logprobs, likeliest, last)
        if delta.content or delta.thoughts or delta.logprobs:
            pending.deltas.add(delta)
        return bool(view.stopped_by)

    completion = await generate(index, on_tokens if call.stream or call.stop else None)
    on_tokens(completion.token_ids[read:], completion.logprobs[read:], completion.likeliest[read:], last=True)
    return completion.until(view.tokens) if view.stopped_by else completion


@asynccontextmanager
async def answering(timeout_s: float) -> AsyncIterator[None]:
    """Limit the time of sampling, and convert its errors.

    Raises:
        ApiError: 504 without an answer in time, 400 for a request that the engine refuses, 503 for a failed engine.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise ApiError(504, f"no answer within {timeout_s:g} s", "timeout") from None
    except RequestRefused as error:
        raise bad_request(str(error), code="unsupported_value") from None
    except EngineError as error:
        raise ApiError(503, f"the model cannot answer: {error}", "engine_error") from None
