"""OpenAI's chat completions: ``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from rl_agents.chat.messages import Message, read_message
from rl_agents.gateway.calls import AnsweredCall, Delta, ModelAnswer, ModelCall, Piece, Start, TokenLogprob
from rl_agents.gateway.dialects.fields import MAX_COUNT, Fields, dropped, function_tools, problem, tool_wishes
from rl_agents.gateway.dialects.stream import SentText, logprob_entries, sse, written
from rl_agents.web.errors import ApiError, bad_request

PATH = "/v1/chat/completions"
PREFIX = "chatcmpl-"
#: What training decides, or what nobody enforces.
WISHES = (
    "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "repetition_penalty",
    "logit_bias", "logprobs", "top_logprobs", "response_format", "tool_choice", "parallel_tool_calls",
    "reasoning_effort", "reasoning", "verbosity", "modalities", "prediction", "max_tool_calls",
)  # fmt: skip
#: What has no bearing on an answer.
NOTES = (
    "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options",
)  # fmt: skip
LEGACY = "the legacy form is not served; send tools"
MESSAGE_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal")


def read(data: Mapping[str, Any]) -> ModelCall:
    """Read a request.

    Raises:
        ApiError: 400 for a field that matters and is missing, of the wrong type or not served.
    """
    fields = Fields(data)
    fields.refuse("functions", LEGACY)
    fields.refuse("function_call", LEGACY)
    fields.refuse("audio", "only text is written")
    model = fields.text("model", required=True)
    items = fields.items("messages")
    if not items:
        raise bad_request("messages: a list of at least one message is needed", "messages", "missing_field")
    tools = fields.items("tools")
    limits = fields.whole("max_completion_tokens"), fields.whole("max_tokens")
    stream_options = fields.object("stream_options")
    return ModelCall(
        dialect="chat_completions",
        model=model,
        messages=tuple(_message(item, number) for number, item in enumerate(items)),
        tools=function_tools(tools),
        max_tokens=limits[0] or limits[1],
        stream=fields.flag("stream"),
        count=fields.whole("n", MAX_COUNT) or 1,
        stop=fields.stops("stop"),
        wishes={**fields.several(WISHES), **tool_wishes(tools)},
        options={**fields.several(NOTES), "include_usage": stream_options.get("include_usage") is True},
        ignored=tuple(sorted((*fields.left(), *dropped("messages", items, MESSAGE_FIELDS)))),
    )


def _message(item: Any, number: int) -> Message:
    place = f"messages[{number}]"
    if isinstance(item, Mapping) and (item.get("role") == "function" or item.get("function_call")):
        raise bad_request(f"{place}: legacy function calls are not served; send tool calls", "messages")
    try:
        return read_message(item, lax=True)
    except ValueError as error:
        raise problem("messages", error, place) from None


def whole(call: ModelCall, answers: Sequence[ModelAnswer]) -> dict[str, Any]:
    """Write the body of an answer; at least one is needed, in the order of their indices."""
    first = answers[0]
    body = _head(call, "chat.completion", Start(first.id, first.created, first.label))
    return {**body, "choices": [_choice(answer) for answer in answers], "usage": _usage(answers)}


def events(call: ModelCall, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    """Write the chunks of a streamed answer, ``[DONE]`` last."""
    return written(_Chunks(call), pieces, call.count)


def error(problem: ApiError) -> dict[str, Any]:
    """Write the body of a refusal."""
    return problem.body()


class _Chunks:
    """Writes chunks; every choice begins with its role and ends with its reason."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._start = Start("", 0)
        self._sent: dict[int, SentText] = {}
        self._answers: list[ModelAnswer] = []

    def start(self, start: Start) -> Iterator[bytes]:
        self._start = start
        for index in range(self._call.count):
            self._sent[index] = SentText()
            yield self._chunk(index, {"role": "assistant", "content": None})

    def delta(self, delta: Delta) -> Iterator[bytes]:
        self._sent[delta.index].add(delta)
        return self._text(delta)

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        self._answers.append(answer)
        sent = self._sent[answer.index]
        yield from self._text(sent.rest(answer))
        if not sent.content and not answer.tool_calls:  # empty words, and not none
            yield self._chunk(answer.index, {"content": ""})
        for number, called in enumerate(answer.tool_calls):
            yield self._chunk(answer.index, {"tool_calls": [{"index": number, **_tool_call(called)}]})
        yield self._chunk(answer.index, {}, answer.finish)

    def end(self) -> Iterator[bytes]:
        if self._call.options.get("include_usage"):
            yield sse({**_head(self._call, "chat.completion.chunk", self._start), "choices": [], **self._totals()})
        yield b"data: [DONE]\n\n"

    def failure(self, problem: ApiError) -> Iterator[bytes]:
        yield sse(error(problem))
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

    def _totals(self) -> dict[str, Any]:
        return {"usage": _usage(self._answers)}


def _choice(answer: ModelAnswer) -> dict[str, Any]:
    content = answer.content or (None if answer.tool_calls else "")
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    if answer.thoughts:
        message["reasoning_content"] = answer.thoughts
    if answer.tool_calls:
        message["tool_calls"] = [_tool_call(called) for called in answer.tool_calls]
    shown = None if answer.logprobs is None else {"content": logprob_entries(answer.logprobs), "refusal": None}
    return {"index": answer.index, "message": message, "logprobs": shown, "finish_reason": answer.finish}


def _tool_call(called: AnsweredCall) -> dict[str, Any]:
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
