"""Anthropic's messages: ``POST /v1/messages`` and ``/v1/messages/count_tokens``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from rl_agents.chat.messages import Excluded, Message, assistant_message, read_calls, read_content, short
from rl_agents.gateway.calls import AnsweredCall, Delta, ModelAnswer, ModelCall, Start
from rl_agents.gateway.dialects.requests import DialectRequest, Stops, model_call, note_dropped, problem, system_first
from rl_agents.gateway.dialects.stream import StreamedAnswer, sse
from rl_agents.web.bodies import read_body, shown
from rl_agents.web.errors import ApiError

ROLES = ("user", "assistant", "system")
FAILED = "Error: "
#: A block of Claude Code's system prompt for the provider and not for the model; it can differ in every request.
BILLING = "x-anthropic-billing-header:"


def system_text(value: Any, excluded: Excluded) -> str:
    """Return the system prompt.

    Raises:
        ApiError: it is not text.
    """
    blocks = value if isinstance(value, list) else [value]
    kept = [b for b in blocks if not (isinstance(b, Mapping) and str(b.get("text")).startswith(BILLING))]
    if len(kept) < len(blocks):
        excluded["system.billing_header"] += 1
    try:
        return read_content(kept if isinstance(value, list) else value, excluded)
    except ValueError as error:
        raise problem("system", error) from None


def messages_from_blocks(items: Sequence[Any], excluded: Excluded) -> tuple[Message, ...]:
    """Convert messages to the form of `rl_agents.chat.messages`.

    Raises:
        ApiError: the first problem and its position.
    """
    messages: list[Message] = []
    for number, item in enumerate(items):
        try:
            messages += _read(item, excluded)
        except ValueError as error:
            raise problem("messages", error, f"messages[{number}]") from None
    if messages[-1]["role"] == "assistant":
        excluded["messages.prefill"] += 1  # the answer is a separate turn and does not continue it
    return tuple(messages)


def _read(item: Any, excluded: Excluded) -> list[Message]:
    if not isinstance(item, Mapping):
        raise ValueError(f"a message is {type(item).__name__}, not an object")
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise ValueError(f"unknown role {shown(role)}; valid: {', '.join(ROLES)}")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list):
        raise ValueError(f"content is {type(content).__name__}, not text or a list of blocks")
    if role == "assistant":
        return [_assistant(blocks, excluded)]
    if role == "system":
        return [{"role": "system", "content": read_content(blocks, excluded)}]
    return _results_and_words(blocks, excluded)


def _results_and_words(blocks: Sequence[Any], excluded: Excluded) -> list[Message]:
    """Convert a user's message: each tool result to a separate message, then the text."""
    results = [_result(block, excluded) for block in blocks if _kind(block) == "tool_result"]
    words = [block for block in blocks if _kind(block) != "tool_result"]
    return [*results, *([{"role": "user", "content": read_content(words, excluded)}] if words or not results else [])]


def _result(block: Mapping[str, Any], excluded: Excluded) -> Message:
    """Convert a tool result; a failure is marked in its text, since chat templates have no field for it."""
    content = read_content(block.get("content"), excluded)
    if block.get("is_error") is True and not content.lower().startswith("error"):
        content = FAILED + content
    return {"role": "tool", "content": content, "tool_call_id": str(block.get("tool_use_id") or "")}


def _assistant(blocks: Sequence[Any], excluded: Excluded) -> Message:
    """Convert an assistant's message, without the provider's own tools and without encrypted thoughts."""
    thoughts: list[str] = []
    words: list[Any] = []
    uses: list[Mapping[str, Any]] = []
    for block in blocks:
        kind = _kind(block)
        if kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        elif kind == "tool_use":
            uses.append({"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input")})
        elif kind == "redacted_thinking" or str(kind).endswith(("_tool_use", "_tool_result")):
            excluded[f"content.{short(kind)}"] += 1
        else:
            words.append(block)
    calls, ids, unreadable = read_calls(uses, excluded)
    content = "\n".join(filter(None, (read_content(words, excluded), unreadable)))
    return assistant_message(content, calls, ids, "".join(thoughts))


def _kind(block: Any) -> Any:
    return block.get("type") if isinstance(block, Mapping) else None


PATH = "/v1/messages"
COUNT_PATH = "/v1/messages/count_tokens"
PREFIX = "msg_"
#: See `rl_agents.gateway.answer_params`.
PARAMS = (
    "temperature", "top_p", "top_k", "tool_choice", "thinking", "output_config", "output_format", "context_management",
)  # fmt: skip
#: Fields without an effect on the answer.
NOTES = ("metadata", "service_tier", "inference_geo", "cache_control", "speed", "diagnostics", "betas")
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class CountRequest(DialectRequest):
    messages: list[Any] = Field(min_length=1)
    system: Any = None
    stop_sequences: Stops = Field([])


class MessagesRequest(CountRequest):
    max_tokens: int = Field(ge=1)


def read(data: Mapping[str, Any]) -> ModelCall:
    """Read a request; see `rl_agents.gateway.dialects`."""
    return _call(read_body(MessagesRequest, data))


def read_count(data: Mapping[str, Any]) -> ModelCall:
    """Read a request to count a prompt's tokens: as `read`, but ``max_tokens`` is optional."""
    return _call(read_body(CountRequest, data))


def _call(body: CountRequest) -> ModelCall:
    ignored = Excluded()
    note_dropped(ignored, "messages", body.messages, ("role", "content"))
    return model_call(
        "messages", body, list(map(_function, body.tools)), ("function", "custom"), body.several(PARAMS), ignored,
        messages=system_first(system_text(body.system, ignored), messages_from_blocks(body.messages, ignored)),
        max_tokens=body.max_tokens if isinstance(body, MessagesRequest) else None,
        stop=tuple(body.stop_sequences),
        options=body.several(NOTES),
    )  # fmt: skip


def _function(tool: Any) -> Any:
    """Rename the schema of a definition as in OpenAI's format."""
    if not isinstance(tool, Mapping):
        return tool
    rest = {name: value for name, value in tool.items() if name not in ("input_schema", "function", "parameters")}
    return {**rest, "parameters": tool.get("input_schema")}


def whole(call: ModelCall, answers: Sequence[ModelAnswer]) -> dict[str, Any]:
    answer = answers[0]
    thoughts = [_thinking(answer.thoughts)] if answer.thoughts else []
    words = [_text(answer.content)] if answer.content or not answer.tool_calls else []
    blocks = [*thoughts, *words, *(_tool_use(called) for called in answer.tool_calls)]
    body = _head(call, Start(answer.id, answer.created, answer.label, answer.prompt_tokens))
    return {**body, "content": blocks, **_ending(answer), "usage": _usage(answer.prompt_tokens, answer)}


def counted(tokens: int) -> dict[str, Any]:
    return {"input_tokens": tokens}


def error(problem: ApiError) -> dict[str, Any]:
    kind = KINDS.get(problem.status, "api_error" if problem.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": problem.message}}


class Writer:
    """Writes a message's events: one block after the other, each with a start, deltas and a stop."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._sent = StreamedAnswer()
        self._open = ""  # "thinking", "text" or nothing
        self._index = 0

    def start(self, start: Start) -> Iterator[bytes]:
        message = {**_head(self._call, start), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message={**message, "usage": _usage(start.prompt_tokens)})
        yield _event("ping")

    def delta(self, delta: Delta) -> Iterator[bytes]:
        yield from self._write(self._sent.add(delta))

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        yield from self._write(self._sent.rest(answer))
        if self._open != "text" and not answer.tool_calls:
            yield from self._begin("text", _text(""))
        yield from self._stop()
        for called in answer.tool_calls:
            yield from self._begin("tool_use", {**_tool_use(called), "input": {}})
            yield self._delta({"type": "input_json_delta", "partial_json": called.arguments})
            yield from self._stop()
        yield _event("message_delta", delta=_ending(answer), usage=_usage(answer.prompt_tokens, answer))

    def end(self) -> Iterator[bytes]:
        yield _event("message_stop")

    def failure(self, problem: ApiError) -> Iterator[bytes]:
        yield sse(error(problem), "error")

    def _write(self, delta: Delta) -> Iterator[bytes]:
        # Thoughts after text would need a second block, which a complete answer does not have: they are not streamed.
        if delta.thoughts and self._open != "text":
            if not self._open:
                yield from self._begin("thinking", {**_thinking(""), "signature": ""})
            yield self._delta({"type": "thinking_delta", "thinking": delta.thoughts})
        if delta.content:
            if self._open != "text":
                yield from self._begin("text", _text(""))
            yield self._delta({"type": "text_delta", "text": delta.content})

    def _begin(self, kind: str, block: dict[str, Any]) -> Iterator[bytes]:
        yield from self._stop()
        self._open = kind
        yield _event("content_block_start", index=self._index, content_block=block)

    def _stop(self) -> Iterator[bytes]:
        if not self._open:
            return
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": _signature(self._sent.thoughts)})
        yield _event("content_block_stop", index=self._index)
        self._index += 1
        self._open = ""

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)


def _event(kind: str, **data: Any) -> bytes:
    return sse({"type": kind, **data}, kind)


def _head(call: ModelCall, start: Start) -> dict[str, Any]:
    return {"id": PREFIX + start.id, "type": "message", "role": "assistant", "model": call.model}


def _thinking(thoughts: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": thoughts, "signature": _signature(thoughts)}


def _signature(thoughts: str) -> str:
    """Return a signature, since clients send back only signed thoughts; it is not checked."""
    return hashlib.sha256(thoughts.encode()).hexdigest()


def _text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def _tool_use(called: AnsweredCall) -> dict[str, Any]:
    return {"type": "tool_use", "id": called.id, "name": called.name, "input": json.loads(called.arguments or "{}")}


def _ending(answer: ModelAnswer) -> dict[str, Any]:
    stopped = answer.stop if answer.finish == "stop" and answer.stop else None
    return {"stop_reason": "stop_sequence" if stopped else REASONS[answer.finish], "stop_sequence": stopped}


def _usage(prompt_tokens: int, answer: ModelAnswer | None = None) -> dict[str, Any]:
    return {
        "input_tokens": prompt_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": answer.completion_tokens if answer else 0,
    }
