"""OpenAI's responses: ``POST /v1/responses``; the events are written in `responses_stream`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from rl_agents.chat.items import messages_from_items
from rl_agents.chat.messages import Excluded, Message
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Piece
from rl_agents.gateway.dialects.fields import Fields, note_dropped, problem, system_first
from rl_agents.gateway.dialects.responses_stream import PREFIX, ResponseEvents, finished, output_items
from rl_agents.gateway.dialects.stream import written
from rl_agents.gateway.dialects.tools import offered_tools, tool_wishes
from rl_agents.web.errors import ApiError, bad_request

PATH = "/v1/responses"
#: What training decides, or what nobody enforces.
WISHES = (
    "temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty", "top_logprobs",
    "tool_choice", "parallel_tool_calls", "reasoning", "text", "truncation", "max_tool_calls", "include",
    "context_management",
)  # fmt: skip
#: What has no bearing on an answer; most of it is said again in the response.
NOTES = (
    "metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "stream_options", "client_metadata",
)  # fmt: skip
ITEM_FIELDS = (
    "type", "role", "content", "id", "status", "call_id", "name", "namespace", "arguments", "input", "output",
    "summary", "encrypted_content",
)  # fmt: skip


def read(data: Mapping[str, Any]) -> ModelCall:
    """Read a request.

    Raises:
        ApiError: 400 for a field that matters and is missing, of the wrong type or not served.
    """
    fields, ignored = Fields(data), Excluded()
    fields.refuse("conversation", "conversations are not kept; send their items as input")
    fields.refuse("prompt", "stored prompts are not kept; send their text as instructions")
    model = fields.text("model", required=True)
    previous = fields.text("previous_response_id").removeprefix(PREFIX)
    items = _input(fields.take("input"), bool(previous), ignored)
    instructions = fields.text("instructions")
    definitions = fields.items("tools")
    tools, forms = offered_tools(definitions, ("function",), ignored)
    note_dropped(ignored, "input", items, ITEM_FIELDS)
    call = ModelCall(
        dialect="responses",
        model=model,
        messages=_messages(instructions, items, ignored, bool(previous)),
        tools=tools,
        max_tokens=fields.whole("max_output_tokens"),
        stream=fields.flag("stream"),
        stop=fields.stops("stop"),
        previous=previous,
        wishes={**_wishes(fields.several(WISHES)), **tool_wishes(definitions)},
        options={**fields.several(NOTES), **({"instructions": instructions} if instructions else {})},
        ignored=ignored,
        forms=forms,
    )
    fields.left(ignored)
    return call


def _input(value: Any, follows: bool, ignored: Excluded) -> list[Any]:
    """Return the items that are new; what refers to an earlier response is in it already, or not kept.

    Raises:
        ApiError: no input, or another type.
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not (value or follows):
        got = "is missing or empty" if not value else "has another type"
        raise bad_request(f"input: {got}; a text or a list of items is needed", "input")
    own = [item for item in value if not _is_reference(item)]
    if len(own) < len(value) and not follows:
        ignored["input.item_reference"] += len(value) - len(own)
    return own


def _is_reference(item: Any) -> bool:
    """Whether an item only names another; its type may be left out."""
    if not isinstance(item, Mapping):
        return False
    return item.get("type") == "item_reference" or (item.get("type") is None and set(item) - {"type"} == {"id"})


def _messages(instructions: str, items: Sequence[Any], ignored: Excluded, follows: bool) -> tuple[Message, ...]:
    try:
        found = system_first(instructions, messages_from_items(items, ignored))
    except ValueError as error:
        raise problem("input", error) from None
    return found if found or follows else ({"role": "user", "content": ""},)


def _wishes(sent: dict[str, Any]) -> dict[str, Any]:
    """Name the parts of ``text`` by themselves: its form is a constraint, its verbosity a wish."""
    text = sent.pop("text", None)
    parts = {f"text.{name}": value for name, value in text.items()} if isinstance(text, Mapping) else {}
    return {**sent, **{name: value for name, value in parts.items() if value is not None}}


def whole(call: ModelCall, answers: Sequence[ModelAnswer]) -> dict[str, Any]:
    """Write the body of a response; the first answer is the one."""
    return finished(call, answers[0], output_items(call, answers[0]))


def events(call: ModelCall, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    """Write the events of a streamed response."""
    return written(ResponseEvents(call), pieces, count=1)


def error(problem: ApiError) -> dict[str, Any]:
    """Write the body of a refusal."""
    return problem.body()
