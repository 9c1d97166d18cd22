"""A request while it is answered, for gateways and servers: sampling, the streams of its text, and its errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rl_agents.background import together
from rl_agents.chat.template import ChatTemplate
from rl_agents.gateway.calls import Delta, ModelAnswer, ModelCall, Start, StreamPart
from rl_agents.gateway.stream_view import StreamView, answer_id
from rl_agents.inference.base import Completion, EngineError, Likeliest, OnTokens, RequestRefused
from rl_agents.tools.calls import Tool
from rl_agents.web.errors import ApiError, bad_request

#: Samples the answer with this index. The callback, if there is one, gets its tokens while they are sampled; then the
#: last part of the answer is enough as the result.
Generate = Callable[[int, OnTokens | None], Awaitable[Completion]]


class DeltaLog:
    """The deltas of a request's answers, for any number of readers, each of which gets all from the beginning.

    Attributes:
        began: time of the first one (`time.monotonic`); 0: there is none yet.
    """

    def __init__(self, ended: bool = False) -> None:
        self.began = 0.0
        self._deltas: list[Delta] = []
        self._ended, self._news = ended, asyncio.Event()

    def add(self, delta: Delta) -> None:
        self.began = self.began or time.monotonic()
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


async def sample_answers(
    request: PendingRequest, template: ChatTemplate, prompt_ids: Sequence[int], tools: Sequence[Tool],
    generate: Generate,
) -> list[tuple[StreamView, Completion]]:  # fmt: skip
    """Sample all answers of a request concurrently; its streams get their text meanwhile.

    A stop string ends the completion at the token that completes the string.
    """

    async def sample(index: int) -> tuple[StreamView, Completion]:
        call, read = request.call, 0
        view = StreamView.of(template, prompt_ids, call.stop, tools, call.logprobs is not None)

        def on_tokens(
            token_ids: Sequence[int], logprobs: Sequence[float], likeliest: Sequence[Likeliest] = (), last: bool = False
        ) -> bool:
            nonlocal read
            read += len(token_ids)
            delta = view.delta(index, token_ids, logprobs, likeliest, last)
            if delta.content or delta.thoughts or delta.logprobs:
                request.deltas.add(delta)
            return bool(view.stopped_by)

        completion = await generate(index, on_tokens if call.stream or call.stop else None)
        on_tokens(completion.token_ids[read:], completion.logprobs[read:], completion.likeliest[read:], last=True)
        return view, completion.until(view.tokens) if view.stopped_by else completion

    if request.call.count == 1:
        return [await sample(0)]
    return await together(sample(index) for index in range(request.call.count))


def context_full(max_model_len: int, found: str) -> ApiError:
    return bad_request(f"the context has {max_model_len} tokens; {found}", "messages", "context_length_exceeded")


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
