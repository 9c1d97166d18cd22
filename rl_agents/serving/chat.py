"""From a chat request to token ids, and from sampled tokens to OpenAI's answers, whole or streamed."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rl_agents.chat.context import ChatTemplate
from rl_agents.data.tasks import step_seed
from rl_agents.engines.base import Sampling
from rl_agents.errors import InputError, nearest
from rl_agents.serving.policy import Piece, PolicyClient, Target
from rl_agents.serving.protocol import ChatRequest
from rl_agents.tools.calls import Tool, read_response
from rl_agents.web.errors import ApiError, bad_request
from rl_agents.web.text import TextStream

T = TypeVar("T")

#: No text has longer tokens than this on average: what is longer is refused before it holds up others for a second.
CHARACTERS_PER_TOKEN = 64


@dataclass(frozen=True)
class ChatModel:
    """What is asked: a name, its tokenizer's template, and its limits in tokens and choices."""

    name: str
    template: ChatTemplate
    max_model_len: int
    max_output_tokens: int
    max_choices: int


@dataclass(frozen=True)
class Prepared:
    """A checked request, ready for the engine: one sampling per choice."""

    request: ChatRequest
    model: ChatModel
    prompt_ids: list[int]
    samplings: list[Sampling]
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))


@dataclass
class Choice:
    """One answer under way.

    Attributes:
        new: text that has come with the last piece; with tools only at the end, because calls are no text.
        new_logprobs: the last piece's tokens in OpenAI's form, if they were asked for.
        finish_reason: empty until the end.
    """

    index: int
    stream: TextStream
    tools: tuple[Tool, ...]
    new: str = ""
    new_logprobs: list[dict[str, Any]] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    finish_reason: str = ""
    tokens: int = 0
    label: str = ""

    def take(self, piece: Piece) -> None:
        """Read further tokens."""
        self.tokens += len(piece.token_ids)
        self.label = piece.label
        self.new = self.stream.add(piece.token_ids, last=bool(piece.finish_reason))
        if piece.finish_reason or self.stream.stopped:
            self.finish_reason = "stop" if self.stream.stopped else piece.finish_reason
        if self.tools:
            self.new = self._read_calls() if self.finish_reason else ""

    def _read_calls(self) -> str:
        """Return the content of a complete answer beside its calls; all of it where they cannot be read."""
        response = read_response(self.stream.text)
        if response.problem or not response.calls:
            return self.stream.text
        self.finish_reason = "tool_calls"
        self.tool_calls = [
            {
                "id": f"call_{uuid.uuid4().hex[:24]}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
            }
            for call in response.calls
        ]
        return response.content


def prepare(request: ChatRequest, model: ChatModel) -> Prepared:
    """Write the prompt and settle how to sample.

    Raises:
        ApiError: 404 for another model; 400 for messages that the template cannot write, a prompt that leaves no room,
            or more tokens or choices than allowed.
    """
    if request.model != model.name:
        message = f"the model '{request.model}' does not exist: {nearest(request.model, [model.name])}"
        raise ApiError(404, message, "model_not_found", "model")
    count = request.n or 1
    if count > model.max_choices:
        raise bad_request(f"n: at most {model.max_choices} choices (got {count})", "n")
    characters = sum(len(message["content"]) for message in request.messages)
    if characters > model.max_model_len * CHARACTERS_PER_TOKEN:
        message = f"the context has {model.max_model_len} tokens; the messages have {characters} characters"
        raise bad_request(message, "messages", "context_length_exceeded")
    try:
        tools = [tool.to_openai() for tool in request.offered_tools]
        prompt_ids = model.template.chat_ids(request.messages, tools)
    except InputError as error:
        raise bad_request(str(error), "tools" if request.offered_tools else "messages", "chat_template") from None
    budget = _budget(request, model, len(prompt_ids))
    return Prepared(request, model, prompt_ids, [_sampling(request, model, budget, index) for index in range(count)])


def _budget(request: ChatRequest, model: ChatModel, prompt_tokens: int) -> int:
    """Return how many tokens may be sampled."""
    room, wanted = model.max_model_len - prompt_tokens, request.budget
    if room < (wanted or 1):
        asked = f" and {wanted} for the answer" if wanted else ""
        message = f"the context has {model.max_model_len} tokens; the messages take {prompt_tokens}{asked}"
        raise bad_request(message, "messages", "context_length_exceeded")
    limit = min(room, model.max_output_tokens or room)
    if wanted is not None and wanted > limit:
        raise bad_request(f"max_tokens: at most {limit} (got {wanted})", "max_tokens")
    return wanted or limit


def _sampling(request: ChatRequest, model: ChatModel, budget: int, index: int) -> Sampling:
    """Every choice has a stream of its own; the first one's is the request's seed itself."""
    seed = request.seed
    return Sampling(
        max_tokens=budget,
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        stop_token_ids=model.template.stop_token_ids,
        seed=seed if seed is None or index == 0 else step_seed(seed % 2**63, index),
    )


async def choice_states(
    prepared: Prepared, index: int, client: PolicyClient, target: Target
) -> AsyncGenerator[Choice, None]:
    """Sample one choice; yields it after every piece, the last time with ``finish_reason``."""
    request, template = prepared.request, prepared.model.template
    choice = Choice(index, TextStream(template.decode, request.stop or ()), request.offered_tools)
    async with aclosing(_pieces(prepared, index, client, target)) as pieces:
        async for piece in pieces:
            choice.take(piece)
            if request.logprobs:
                choice.new_logprobs = list(_logprobs(piece, template))
            yield choice
            if choice.finish_reason:
                return


async def _pieces(prepared: Prepared, index: int, client: PolicyClient, target: Target) -> AsyncGenerator[Piece, None]:
    """Listen to the engine where somebody wants the beginning or may stop it; else wait for the whole."""
    if not (prepared.request.stream or prepared.request.stop):
        yield await client.generate(prepared.prompt_ids, prepared.samplings[index], target)
        return
    async with aclosing(client.stream(prepared.prompt_ids, prepared.samplings[index], target)) as stream:
        async for piece in stream:
            yield piece


async def answer(prepared: Prepared, client: PolicyClient, target: Target) -> dict[str, Any]:
    """Return the whole answer."""
    results = await _together([_whole(prepared, index, client, target) for index in range(len(prepared.samplings))])
    body = _head(prepared, "chat.completion", results[0][0].label)
    body["choices"] = [_whole_choice(prepared, choice, logprobs) for choice, logprobs in results]
    body["usage"] = _usage(prepared, [choice for choice, _ in results])
    return body


async def _whole(
    prepared: Prepared, index: int, client: PolicyClient, target: Target
) -> tuple[Choice, list[dict[str, Any]]]:
    logprobs: list[dict[str, Any]] = []
    async for choice in choice_states(prepared, index, client, target):
        logprobs += choice.new_logprobs
    return choice, logprobs


async def chunks(
    prepared: Prepared, client: PolicyClient, target: Target, limits: AbstractAsyncContextManager[None]
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of a streamed answer; those of several choices come as they are sampled.

    Sampling happens in one task, inside ``limits``: whoever iterates may change from chunk to chunk.
    """
    states: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
    done: list[Choice] = []

    async def follow(index: int) -> None:
        first = True
        async for choice in choice_states(prepared, index, client, target):
            for chunk in _choice_chunks(prepared, choice, first):
                states.put_nowait(chunk)
            first = False
        done.append(choice)

    async def follow_all() -> None:
        try:
            async with limits:
                await _together([follow(index) for index in range(len(prepared.samplings))])
        finally:
            states.put_nowait(None)

    work = asyncio.create_task(follow_all())
    try:
        while (chunk := await states.get()) is not None:
            yield chunk
        await work
    finally:
        work.cancel()
    options = prepared.request.stream_options
    if options is not None and options.include_usage:
        yield {
            **_head(prepared, "chat.completion.chunk", done[0].label),
            "choices": [],
            "usage": _usage(prepared, done),
        }


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; the first failure cancels the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(item) for item in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _choice_chunks(prepared: Prepared, choice: Choice, first: bool) -> Iterator[dict[str, Any]]:
    """The chunks of one piece: the role once, then text or calls, and at the end the reason."""
    delta: dict[str, Any] = {"role": "assistant", "content": ""} if first else {}
    if choice.new:
        delta["content"] = choice.new
    if choice.tool_calls:
        delta["tool_calls"] = [{"index": number, **call} for number, call in enumerate(choice.tool_calls)]
    if delta or choice.new_logprobs:
        yield _chunk(prepared, choice, delta, None)
    if choice.finish_reason:
        yield _chunk(prepared, choice, {}, choice.finish_reason)


def _chunk(prepared: Prepared, choice: Choice, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
    entries = choice.new_logprobs if reason is None else []
    logprobs = {"content": entries} if prepared.request.logprobs else None
    part = {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
    return {**_head(prepared, "chat.completion.chunk", choice.label), "choices": [part]}


def _whole_choice(prepared: Prepared, choice: Choice, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    # With tools `new` holds the content; a choice without them was never asked to keep any back.
    content = choice.new if choice.tools else choice.stream.text
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if choice.tool_calls:
        message |= {"content": content or None, "tool_calls": choice.tool_calls}
    return {
        "index": choice.index,
        "message": message,
        "logprobs": {"content": logprobs} if prepared.request.logprobs else None,
        "finish_reason": choice.finish_reason,
    }


def _head(prepared: Prepared, kind: str, label: str) -> dict[str, Any]:
    return {
        "id": prepared.id,
        "object": kind,
        "created": prepared.created,
        "model": prepared.model.name,
        "system_fingerprint": label,
    }


def _usage(prepared: Prepared, choices: list[Choice]) -> dict[str, int]:
    prompt, sampled = len(prepared.prompt_ids), sum(choice.tokens for choice in choices)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _logprobs(piece: Piece, template: ChatTemplate) -> Iterator[dict[str, Any]]:
    for token_id, logprob in zip(piece.token_ids, piece.logprobs, strict=True):
        token = template.tokenizer.decode([token_id])
        yield {"token": token, "logprob": logprob, "bytes": list(token.encode()), "top_logprobs": []}
