"""OpenAI's responses: ``POST /v1/responses``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from rl_agents.chat.items import messages_from_items
from rl_agents.chat.messages import Excluded, Message
from rl_agents.gateway.calls import AnsweredCall, Delta, ModelAnswer, ModelCall, Start, TokenLogprob, ToolForm
from rl_agents.gateway.dialects.requests import (
    DialectRequest,
    Limit,
    Stops,
    model_call,
    note_dropped,
    problem,
    system_first,
)
from rl_agents.gateway.dialects.stream import StreamedAnswer, logprob_entries, sse
from rl_agents.tools.calls import Tool
from rl_agents.web.bodies import read_body
from rl_agents.web.errors import ApiError, bad_request

PREFIX = "resp_"
#: Fields of a request that its response repeats.
ECHOED = (
    "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "instructions",
)  # fmt: skip

Item = dict[str, Any]


def reasoning_item(id: str, thoughts: str | None, status: str) -> Item:
    """Return an item with thoughts; None: without a summary yet."""
    summary = [] if thoughts is None else [_summary(thoughts)]
    return {"id": f"rs_{id}", "type": "reasoning", "summary": summary, "status": status}


def message_item(id: str, content: str | None, status: str, logprobs: Sequence[TokenLogprob] = ()) -> Item:
    parts = [] if content is None else [_part(content, logprobs)]
    return {"id": f"msg_{id}", "type": "message", "role": "assistant", "status": status, "content": parts}


def call_item(call: ModelCall, id: str, number: int, called: AnsweredCall, status: str) -> Item:
    """Return an item with a tool call; it has no arguments yet while it is ``in_progress``."""
    form = call.forms.get(called.name) or ToolForm(called.name)
    head = {"id": f"fc_{id}_{number}", "type": "function_call", "call_id": called.id, "name": form.name}
    text = "" if status == "in_progress" else called.text() if form.custom else called.arguments
    place = {"namespace": form.namespace} if form.namespace else {}
    if form.custom:
        return {**head, "id": f"ctc_{id}_{number}", "type": "custom_tool_call", **place, "input": text}
    return {**head, **place, "arguments": text, "status": status}


def output_items(call: ModelCall, answer: ModelAnswer) -> list[Item]:
    """Return the items of an answer: thoughts, text (also empty text, if there is no call), and calls."""
    status = "incomplete" if answer.finish == "length" else "completed"
    thoughts = [reasoning_item(answer.id, answer.thoughts, "completed")] if answer.thoughts else []
    spoken = bool(answer.content) or not answer.tool_calls
    words = [message_item(answer.id, answer.content, status, answer.logprobs or ())] if spoken else []
    calls = [call_item(call, answer.id, number, called, "completed") for number, called in enumerate(answer.tool_calls)]
    return [*thoughts, *words, *calls]


def envelope(call: ModelCall, start: Start, status: str, output: Sequence[Item] = ()) -> dict[str, Any]:
    """Return a response. Sampling parameters are null in a gateway, where the run determines them."""
    formed = {name.removeprefix("text."): value for name, value in call.params.items() if name.startswith("text.")}
    return {
        "id": PREFIX + start.id,
        "object": "response",
        "created_at": start.created,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "max_output_tokens": call.max_tokens,
        "model": call.model,
        "output": list(output),
        "parallel_tool_calls": call.params.get("parallel_tool_calls", True),
        "previous_response_id": PREFIX + call.previous if call.previous else None,
        "reasoning": call.params.get("reasoning", {"effort": None, "summary": None}),
        "temperature": call.options.get("temperature"),
        "text": {"format": {"type": "text"}, **formed},
        "tool_choice": call.params.get("tool_choice", "auto"),
        "tools": [_tool(call, tool) for tool in call.tools],
        "top_p": call.options.get("top_p"),
        "truncation": "disabled",
        "usage": None,
        **{name: call.options.get(name) for name in ECHOED},
    }


def finished(call: ModelCall, answer: ModelAnswer, output: Sequence[Item]) -> dict[str, Any]:
    cut = answer.finish == "length"
    body = envelope(call, Start(answer.id, answer.created), "incomplete" if cut else "completed", output)
    body["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
    body["usage"] = {
        "input_tokens": answer.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": answer.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": answer.thought_tokens},
        "total_tokens": answer.prompt_tokens + answer.completion_tokens,
    }
    return body


class Writer:
    """Writes a response's events: one item after the other, each added, filled and done."""

    def __init__(self, call: ModelCall) -> None:
        self._call = call
        self._start = Start("", 0)
        self._number = 0
        self._sent = StreamedAnswer()
        self._open = ""  # "reasoning", "message" or nothing
        self._output: list[Item] = []

    def start(self, start: Start) -> Iterator[bytes]:
        self._start = start
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=envelope(self._call, start, "in_progress"))

    def delta(self, delta: Delta) -> Iterator[bytes]:
        yield from self._write(self._sent.add(delta))

    def answer(self, answer: ModelAnswer) -> Iterator[bytes]:
        yield from self._write(self._sent.rest(answer))
        status = "incomplete" if answer.finish == "length" else "completed"
        if self._open == "reasoning":
            yield from self._close_reasoning()
        if not self._open and not answer.tool_calls:
            yield from self._open_message()
        if self._open:
            yield from self._close_message(status, answer.logprobs or ())
        for number, called in enumerate(answer.tool_calls):
            yield from self._call_events(number, called)
        yield self._event(
            "response.incomplete" if status == "incomplete" else "response.completed",
            response=finished(self._call, answer, self._output),
        )

    def end(self) -> Iterator[bytes]:
        return iter(())

    def failure(self, problem: ApiError) -> Iterator[bytes]:
        """Return an error event, which SDKs raise, and then the failed response, for clients that read its status."""
        fields = {"code": problem.code, "message": problem.message, "param": problem.param}
        yield self._event("error", **fields, error=problem.body()["error"])
        failed = envelope(self._call, self._start, "failed", self._output)
        failed["error"] = {"code": "server_error", "message": problem.message}
        yield self._event("response.failed", response=failed)

    def _write(self, delta: Delta) -> Iterator[bytes]:
        # Thoughts after text would need a second item, which a complete answer does not have: they are not streamed.
        if delta.thoughts and self._open != "message":
            if not self._open:
                yield from self._open_reasoning()
            yield self._event("response.reasoning_summary_text.delta", **self._summary_place(), delta=delta.thoughts)
        if delta.content:
            if self._open == "reasoning":
                yield from self._close_reasoning()
            if not self._open:
                yield from self._open_message()
            shown = logprob_entries(delta.logprobs)
            yield self._event("response.output_text.delta", **self._place(), delta=delta.content, logprobs=shown)

    def _open_reasoning(self) -> Iterator[bytes]:
        self._open = "reasoning"
        yield self._added(reasoning_item(self._start.id, None, "in_progress"))
        yield self._event("response.reasoning_summary_part.added", **self._summary_place(), part=_summary(""))

    def _close_reasoning(self) -> Iterator[bytes]:
        thoughts, place = self._sent.thoughts, self._summary_place()
        yield self._event("response.reasoning_summary_text.done", **place, text=thoughts)
        yield self._event("response.reasoning_summary_part.done", **place, part=_summary(thoughts))
        yield self._done(reasoning_item(self._start.id, thoughts, "completed"))

    def _open_message(self) -> Iterator[bytes]:
        self._open = "message"
        yield self._added(message_item(self._start.id, None, "in_progress"))
        yield self._event("response.content_part.added", **self._place(), part=_part(""))

    def _close_message(self, status: str, logprobs: Sequence[TokenLogprob]) -> Iterator[bytes]:
        content, place = self._sent.content, self._place()
        yield self._event("response.output_text.done", **place, text=content, logprobs=logprob_entries(logprobs))
        yield self._event("response.content_part.done", **place, part=_part(content, logprobs))
        yield self._done(message_item(self._start.id, content, status, logprobs))

    def _call_events(self, number: int, called: AnsweredCall) -> Iterator[bytes]:
        whole = call_item(self._call, self._start.id, number, called, "completed")
        custom = whole["type"] == "custom_tool_call"
        kind, name = ("custom_tool_call_input", "input") if custom else ("function_call_arguments", "arguments")
        place = {"item_id": whole["id"], "output_index": len(self._output)}
        yield self._added(call_item(self._call, self._start.id, number, called, "in_progress"))
        yield self._event(f"response.{kind}.delta", **place, delta=whole[name])
        named = {} if custom else {"name": whole["name"]}
        yield self._event(f"response.{kind}.done", **place, **{name: whole[name]}, **named)
        yield self._done(whole)

    def _place(self) -> dict[str, Any]:
        return {"item_id": f"msg_{self._start.id}", "output_index": len(self._output), "content_index": 0}

    def _summary_place(self) -> dict[str, Any]:
        return {"item_id": f"rs_{self._start.id}", "output_index": len(self._output), "summary_index": 0}

    def _added(self, item: Item) -> bytes:
        return self._event("response.output_item.added", output_index=len(self._output), item=item)

    def _done(self, item: Item) -> bytes:
        event = self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)
        self._open = ""
        return event

    def _event(self, kind: str, **data: Any) -> bytes:
        self._number += 1
        return sse({"type": kind, "sequence_number": self._number - 1, **data}, kind)


def _part(content: str, logprobs: Sequence[TokenLogprob] = ()) -> Item:
    return {"type": "output_text", "text": content, "annotations": [], "logprobs": logprob_entries(logprobs)}


def _summary(thoughts: str) -> Item:
    return {"type": "summary_text", "text": thoughts}


def _tool(call: ModelCall, tool: Tool) -> Item:
    form = call.forms.get(tool.name) or ToolForm(tool.name)
    head = {"name": form.name, "description": tool.description}
    if form.custom:
        return {"type": "custom", **head}
    return {"type": "function", **head, "parameters": dict(tool.parameters), "strict": False}


PATH = "/v1/responses"
#: See `rl_agents.gateway.answer_params`.
PARAMS = (
    "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "top_logprobs",
    "tool_choice", "parallel_tool_calls", "reasoning", "text", "truncation", "max_tool_calls", "include",
    "context_management",
)  # fmt: skip
#: Fields without an effect on the answer; the response repeats most of them.
NOTES = (
    "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "stream_options", "client_metadata",
)  # fmt: skip
ITEM_FIELDS = (
    "type", "role", "content", "id", "status", "call_id", "name", "namespace", "arguments", "input", "output",
    "summary", "encrypted_content",
)  # fmt: skip


class ResponsesRequest(DialectRequest):
    input: str | list[Any]
    instructions: str = ""
    previous_response_id: str = ""
    max_output_tokens: Limit = None
    stop: Stops = Field([])
    conversation: Any = None
    prompt: Any = None


def read(data: Mapping[str, Any]) -> ModelCall:
    """Read a request; see `rl_agents.gateway.dialects`."""
    body, ignored = read_body(ResponsesRequest, data), Excluded()
    for name, kept in (("conversation", "conversations are not kept"), ("prompt", "stored prompts are not kept")):
        if getattr(body, name):
            raise bad_request(f"{name}: {kept}; send all of it as input and instructions", name, "unsupported_value")
    previous = body.previous_response_id.removeprefix(PREFIX)
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    if not items and not previous:
        raise bad_request("input: a text or a list of at least one item is needed", "input")
    note_dropped(ignored, "input", items, ITEM_FIELDS)
    return model_call(
        "responses", body, body.tools, ("function",), _params(body.several(PARAMS)), ignored,
        messages=_messages(body.instructions, items, ignored, bool(previous)),
        max_tokens=body.max_output_tokens,
        stop=tuple(body.stop),
        previous=previous,
        options={**body.several(NOTES), **({"instructions": body.instructions} if body.instructions else {})},
    )  # fmt: skip


def _messages(instructions: str, items: Sequence[Any], ignored: Excluded, follows: bool) -> tuple[Message, ...]:
    try:
        found = system_first(instructions, messages_from_items(items, ignored))
    except ValueError as error:
        raise problem("input", error) from None
    return found if found or follows else ({"role": "user", "content": ""},)


def _params(sent: dict[str, Any]) -> dict[str, Any]:
    """Replace ``text`` by its parts, since ``text.format`` is a constraint and ``text.verbosity`` is not."""
    text = sent.pop("text", None)
    parts = {f"text.{name}": value for name, value in text.items()} if isinstance(text, Mapping) else {}
    return {**sent, **{name: value for name, value in parts.items() if value is not None}}


def whole(call: ModelCall, answers: Sequence[ModelAnswer]) -> dict[str, Any]:
    return finished(call, answers[0], output_items(call, answers[0]))
