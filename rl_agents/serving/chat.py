"""From a request in any dialect to token ids, and from sampled tokens to the pieces that the dialect writes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field, replace

from rl_agents.background import together
from rl_agents.chat.history import in_call_order
from rl_agents.chat.template import ChatTemplate
from rl_agents.errors import InputError
from rl_agents.gateway.answers import answer_id, written_answer
from rl_agents.gateway.calls import Delta, ModelAnswer, ModelCall, Piece, Start, TokenLogprob
from rl_agents.gateway.stream_view import Shown, opened_thought
from rl_agents.inference.base import Sampling
from rl_agents.serving.policy import Piece as Sampled
from rl_agents.serving.policy import PolicyClient, Target
from rl_agents.serving.request_params import Wishes
from rl_agents.web.errors import bad_request

#: Told of every piece's label and of what it adds to an answer.
Tell = Callable[[str, Delta], None]


@dataclass(frozen=True)
class ChatModel:
    """What is asked: a name, its tokenizer's template, its limits in tokens and choices; its adapter, if it is one."""

    name: str
    template: ChatTemplate
    max_model_len: int
    max_output_tokens: int
    max_choices: int
    adapter: str = ""


@dataclass(frozen=True)
class Prepared:
    """A checked request, ready for the engine: one sampling per choice."""

    call: ModelCall
    wishes: Wishes
    model: ChatModel
    prompt_ids: list[int]
    samplings: list[Sampling]
    number: int = field(default_factory=lambda: secrets.randbits(62))
    created: int = field(default_factory=lambda: int(time.time()))

    def start(self, label: str) -> Start:
        """Return what a stream begins with."""
        return Start(answer_id(self.number), self.created, label, len(self.prompt_ids))


def prepare(call: ModelCall, wishes: Wishes, model: ChatModel) -> Prepared:
    """Write the prompt and settle how to sample.

    Raises:
        ApiError: 400 for messages that the template cannot write, a prompt that leaves no room,
            or more tokens or choices than allowed.
    """
    if call.count > model.max_choices:
        raise bad_request(f"n: at most {model.max_choices} choices (got {call.count})", "n")
    prompt = prompt_ids(call, wishes, model)
    budget, stops, tag = _budget(call, model, len(prompt)), model.template.stop_token_ids, ""
    if wishes.structure is not None:
        tag = wishes.structure.tag(opened_thought(model.template, prompt), _thinks(call, model))
    samplings = [wishes.sampling(budget, stops, index, tag, model.adapter) for index in range(call.count)]
    return Prepared(call, wishes, model, prompt, samplings)


def _thinks(call: ModelCall, model: ChatModel) -> bool:
    """Whether an answer may begin with a thought: its chat template or its prompt speaks of them."""
    said = (str(model.template.tokenizer.chat_template), *(message["content"] for message in call.messages))
    return any("<think>" in text for text in said)


def prompt_ids(call: ModelCall, wishes: Wishes, model: ChatModel) -> list[int]:
    """Write the prompt of a request.

    Raises:
        ApiError: see `prepare`.
    """
    if model.template.exceeds(call.messages, model.max_model_len):
        message = f"the context has {model.max_model_len} tokens; the messages are longer"
        raise bad_request(message, "messages", "context_length_exceeded")
    try:
        messages, tools = in_call_order(call.messages), [tool.to_openai() for tool in wishes.tools]
        return model.template.chat_ids(messages, tools, repair=True)
    except InputError as error:
        raise bad_request(str(error), "tools" if wishes.tools else "messages", "chat_template") from None


def _budget(call: ModelCall, model: ChatModel, prompt_tokens: int) -> int:
    """Return how many tokens may be sampled."""
    room = model.max_model_len - prompt_tokens
    if room < 1:
        message = f"the context has {model.max_model_len} tokens; the messages take {prompt_tokens}"
        raise bad_request(message, "messages", "context_length_exceeded")
    return min(room, model.max_output_tokens or room, call.max_tokens or room)


async def answers(prepared: Prepared, client: PolicyClient, target: Target) -> list[ModelAnswer]:
    """Return the whole answers."""
    work = [_answer(prepared, index, client, target) for index in range(len(prepared.samplings))]
    return await together(work)


async def pieces(
    prepared: Prepared, client: PolicyClient, target: Target, limits: AbstractAsyncContextManager[None]
) -> AsyncGenerator[Piece, None]:
    """Yield what a stream consists of: `Start` with the first token, deltas as they come, the whole answers last.

    Sampling happens in one task, inside ``limits``: whoever iterates may change from piece to piece.
    """
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
            async with limits:
                work = [_answer(prepared, index, client, target, tell) for index in range(len(prepared.samplings))]
                return await together(work)
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


async def _answer(
    prepared: Prepared, index: int, client: PolicyClient, target: Target, tell: Tell | None = None
) -> ModelAnswer:
    """Sample one choice to its end, or to the first stop string."""
    call, template = prepared.call, prepared.model.template
    shown = Shown.of(template, prepared.prompt_ids, call.stop, prepared.wishes.tools)
    logprobs: list[TokenLogprob] = []
    tokens, label, reason = 0, "", ""
    async with aclosing(_sampled(prepared, index, client, target)) as sampled:
        async for piece in sampled:
            tokens, label, reason = tokens + len(piece.token_ids), piece.label, piece.finish_reason
            new = tuple(_logprobs(piece, template)) if prepared.wishes.logprobs else ()
            logprobs += new
            content, thoughts = shown.add(piece.token_ids, last=bool(reason))
            if tell is not None:
                tell(label, Delta(index, content, thoughts, new))
            if shown.stopped_by:
                break
    answer = written_answer(shown, call.dialect, prepared.number + index, prepared.start(label), tokens, reason)
    return replace(answer, index=index, logprobs=tuple(logprobs) if prepared.wishes.logprobs else None)


async def _sampled(
    prepared: Prepared, index: int, client: PolicyClient, target: Target
) -> AsyncGenerator[Sampled, None]:
    """Listen to the engine where somebody wants the beginning or may stop it; else wait for the whole."""
    if not (prepared.call.stream or prepared.call.stop):
        yield await client.generate(prepared.prompt_ids, prepared.samplings[index], target)
        return
    async with aclosing(client.stream(prepared.prompt_ids, prepared.samplings[index], target)) as stream:
        async for piece in stream:
            yield piece


def _logprobs(piece: Sampled, template: ChatTemplate) -> Iterator[TokenLogprob]:
    def text(token: int) -> str:
        return str(template.tokenizer.decode([token]))

    for place, (token_id, logprob) in enumerate(zip(piece.token_ids, piece.logprobs, strict=True)):
        top = piece.likeliest[place] if piece.likeliest else ()
        yield TokenLogprob(text(token_id), logprob, tuple((text(other), value) for other, value in top))
