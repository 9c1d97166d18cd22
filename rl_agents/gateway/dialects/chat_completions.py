"""OpenAI's chat completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from rl_agents.chat.messages import Excluded, Message, read_message
from rl_agents.gateway.calls import AnsweredCall, Delta, ModelAnswer, ModelCall, Start, TokenLogprob
from rl_agents.gateway.dialects.requests import DialectRequest, Limit, Stops, model_call, note_dropped, problem
from rl_agents.gateway.dialects.stream import StreamedAnswer, logprob_entries, sse
from rl_agents.web.bodies import read_body
from rl_agents.web.errors import ApiError

PATH = "/v1/chat/completions"
PREFIX = "chatcmpl-"
#: See `rl_agents.gateway.answer_params`.
PARAMS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "logit_bias", "logprobs", "top_logprobs", "response_format", "tool_choice", "parallel_tool_calls",
    "reasoning_effort", "reasoning", "verbosity", "modalities", "prediction", "max_tool_calls",
)  # fmt: skip
#: Fields without an effect on the answer.
NOTES = (
    "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options",
)  # fmt: skip
MESSAGE_FIELDS = (
    "role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal",
)  # fmt: skip


class ChatRequest(DialectRequest):
    """The fields that affect an answer."""

    messages: list[Any] = Field(min_length=1)
    max_completion_tokens: Limit = None
    max_tokens: Limit = None
    n: int = Field(1, ge=1, le=64)
    stop: Stops = Field([])
    stream_options: dict[str, Any] = Field({})


def read(data: Mapping[str, Any]) -> ModelCall:
    """Read a request; see `rl_agents.gateway.dialects`."""
    body, ignored = read_body(ChatRequest, data), Excluded()
    note_dropped(ignored, "messages", body.messages, MESSAGE_FIELDS)
    return model_call(
        "chat_completions", body, body.tools, ("function",), body.several(PARAMS), ignored,
        messages=tuple(_message(item, number, ignored) for number, item in enumerate(body.messages)),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        count=body.n,
        stop=tuple(body.stop),
        options={**body.several(NOTES), "include_usage": body.stream_options.get("include_usage") is True},
    )  # fmt: skip


def _message(item: Any, number: int, ignored: Excluded) -> Message:
    try:
        return read_message(item, ignored)
    except ValueError as error:
        raise problem("messages", error, f"messages[{number}]") from None


def whole(call: ModelCall, answers: Sequence[ModelAnswer]) -> dict[str, Any]:
    """Return the body of a response with at least one answer, in the order of their indices."""
    first = answers[0]
    body = _head(call, "chat.completion", Start(first.id, first.created, first.label))
    return {**body, "choices": [_choice(call, answer) for answer in answers], "usage": _usage(answers)}


class Writer:
    """Writes chunks, and ``[DONE]``; every choice begins with its role and ends with its finish reason."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._start = Start("", 0)
        self._sent: dict[int, StreamedAnswer] = {}
        self._answers: list[ModelAnswer] = []

    def start(self, start: Start) -> Iterator[bytes]:
        self._start = start
        for index in range(self._call.count):
            self._sent[index] = StreamedAnswer()
            yield self._chunk(index, {"role": "assistant", "content": None})

    def delta(self, delta: Delta) -> Iterator[bytes]:
        self._sent[delta.index].add(delta)
        return self._text(delta)

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        self._answers.append(answer)
        sent = self._sent[answer.index]
        yield from self._text(sent.rest(answer))
        if not sent.content and not answer.tool_calls:  # empty text instead of null
            yield self._chunk(answer.index, {"content": ""})
        for number, called in enumerate(answer.tool_calls):
            yield self._chunk(answer.index, {"tool_calls": [{"index": number, **_tool_call(self._call, called)}]})
        yield self._chunk(answer.index, {}, answer.finish)

    def end(self) -> Iterator[bytes]:
        if self._call.options.get("include_usage"):
            head = _head(self._call, "chat.completion.chunk", self._start)
            yield sse({**head, "choices": [], "usage": _usage(self._answers)})
        yield b"data: [DONE]\n\n"

    def failure(self, problem: ApiError) -> Iterator[bytes]:
        yield sse(problem.body())
        yield b"data: [DONE]\n\n"

    def _text(self, delta: Delta) -> Iterator[bytes]:
        if delta.thoughts:
            yield self._chunk(delta.index, {"reasoning_content": delta.thoughts})
        if delta.content or delta.logprobs:
            yield self._chunk(delta.index, {"content": delta.content}, logprobs=delta.logprobs)

    def _chunk(
        self, index: int, delta: dict[str, Any], reason: str | None = None, logprobs: Sequence[TokenLogprob] = ()
    ) -> bytes:
        shown = {"content": logprob_entries(logprobs), "refusal": None} if logprobs else None
        choice = {"index": index, "delta": delta, "logprobs": shown, "finish_reason": reason}
        usage = {"usage": None} if self._call.options.get("include_usage") else {}
        return sse({**_head(self._call, "chat.completion.chunk", self._start), "choices": [choice], **usage})


def _choice(call: ModelCall, answer: ModelAnswer) -> dict[str, Any]:
    content = answer.content or (None if answer.tool_calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.tool_calls:
        message["tool_calls"] = [_tool_call(call, called) for called in answer.tool_calls]
    if answer.thoughts:
        message["reasoning_content"] = answer.thoughts
    shown = None if answer.logprobs is None else {"content": logprob_entries(answer.logprobs), "refusal": None}
    return {"index": answer.index, "message": message, "logprobs": shown, "finish_reason": answer.finish}


def _tool_call(call: ModelCall, called: AnsweredCall) -> dict[str, Any]:
    form = call.forms.get(called.name)
    if form is not None and form.custom:
        return {"id": called.id, "type": "custom", "custom": {"name": form.name, "input": called.text()}}
    return {"id": called.id, "type": "function", "function": {"name": called.name, "arguments": called.arguments}}


def _head(call: ModelCall, kind: str, start: Start) -> dict[str, Any]:
    return {
        "id": PREFIX + start.id,
        "object": kind,
        "created": start.created,
        "model": call.model,
        "system_fingerprint": start.label,
    }


def _usage(answers: Sequence[ModelAnswer]) -> dict[str, Any]:
    prompt, sampled = answers[0].prompt_tokens, sum(answer.completion_tokens for answer in answers)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": sampled,
        "total_tokens": prompt + sampled,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": sum(answer.thought_tokens for answer in answers)},
    }
