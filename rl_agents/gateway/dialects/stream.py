"""Shared parts of the dialects' streams: server-sent events, the stream's start, and the sent text of an answer."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from rl_agents.gateway.calls import Delta, ModelAnswer, Start, StreamPart, TokenLogprob
from rl_agents.web.errors import ApiError

BROKEN_OFF = "the answer broke off; send the request again"


class Writer(Protocol):
    """Writes one call's stream in a dialect; every method returns the events to send."""

    def start(self, start: Start) -> Iterator[bytes]: ...
    def delta(self, delta: Delta) -> Iterator[bytes]: ...
    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        """Return the remaining events of a complete answer."""

    def end(self) -> Iterator[bytes]: ...
    def failure(self, problem: ApiError) -> Iterator[bytes]:
        """Return the events that replace the rest of the stream."""


async def events(writer: Writer, pieces: AsyncGenerator[StreamPart, None], count: int) -> AsyncIterator[bytes]:
    """Yield a stream's events; an error, or a missing answer, ends it with the dialect's failure.

    If the client disconnects, ``pieces`` is closed, which ends the sampling.

    Args:
        count: number of expected answers.
    """
    whole = 0
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                whole += isinstance(piece, ModelAnswer)
                for event in _events(writer, piece):
                    yield event
        if whole < count:
            raise ApiError(500, BROKEN_OFF, "answer_broken_off")
        for event in writer.end():
            yield event
    except ApiError as problem:
        for event in writer.failure(problem):
            yield event


async def primed(pieces: AsyncGenerator[StreamPart, None]) -> AsyncGenerator[StreamPart, None]:
    """Wait for the first piece, so that an earlier error can be an HTTP status, then return the whole stream."""
    first = await anext(pieces)

    async def whole() -> AsyncGenerator[StreamPart, None]:
        async with aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    return whole()


def sse(data: Mapping[str, Any], name: str = "") -> bytes:
    """Return a server-sent event in ASCII, since some clients treat U+2028 and similar characters as line ends."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data)}\n\n".encode()


class StreamedAnswer:
    """The text of one answer that was sent to the client."""

    def __init__(self) -> None:
        self.content, self.thoughts, self.logprobs = "", "", 0

    def add(self, delta: Delta) -> Delta:
        self.content += delta.content
        self.thoughts += delta.thoughts
        self.logprobs += len(delta.logprobs)
        return delta

    def rest(self, answer: ModelAnswer) -> Delta:
        """Return the remaining text of a complete answer; empty if other text has been sent."""
        content = answer.content[len(self.content) :] if answer.content.startswith(self.content) else ""
        thoughts = answer.thoughts[len(self.thoughts) :] if answer.thoughts.startswith(self.thoughts) else ""
        return self.add(Delta(answer.index, content, thoughts, (answer.logprobs or ())[self.logprobs :]))


def logprob_entries(logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
    """Return log-probabilities in the format of OpenAI's APIs."""
    return [
        {**_entry(item.token, item.logprob), "top_logprobs": [_entry(token, value) for token, value in item.top]}
        for item in logprobs
    ]


def _entry(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _events(writer: Writer, piece: StreamPart) -> Iterator[bytes]:
    if isinstance(piece, Start):
        return writer.start(piece)
    return writer.delta(piece) if isinstance(piece, Delta) else writer.answer(piece)
