"""Every answer, whole and streamed, validates as the official clients' own types."""

import asyncio
import json
from types import ModuleType
from typing import Any

import pytest
from anthropic.types import ErrorResponse, Message, MessageTokensCount, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from scripted_gateway import ANSWERS, answered, pieces_of

from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects import chat_completions, messages, responses, stream
from rl_agents.web.errors import ApiError

ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "max_tokens": 9}
FLAT = [
    {"type": "function", "name": "add", "parameters": {"type": "object"}}, {"type": "custom", "name": "edit"},
    {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "go", "parameters": {}}]},
]  # fmt: skip
CHAT = [{"type": "function", "function": {"name": "add"}}, {"type": "custom", "custom": {"name": "edit"}}]
CALLS = {
    "chat": chat_completions.read({**ASKED, "tools": CHAT, "stream_options": {"include_usage": True}}),
    "responses": responses.read({"model": "m", "input": "x", "tools": FLAT, "metadata": {"a": "b"}, "store": False}),
    "messages": messages.read({**ASKED, "tools": [{"name": "add", "input_schema": {"type": "object"}}]}),
}
#: Dialect -> the client's types of a whole answer and of an event.
TYPES: dict[str, tuple[ModuleType, TypeAdapter[Any], TypeAdapter[Any]]] = {
    "chat_completions": (chat_completions, TypeAdapter(ChatCompletion), TypeAdapter(ChatCompletionChunk)),
    "responses": (responses, TypeAdapter(Response), TypeAdapter(ResponseStreamEvent)),
    "messages": (messages, TypeAdapter(Message), TypeAdapter(RawMessageStreamEvent)),
}


async def events(dialect: ModuleType, call: ModelCall, *pieces: Any) -> list[Any]:
    sent = b"".join([event async for event in stream.events(dialect.Writer(call), pieces_of(*pieces), 1)]).decode()
    lines = [line.removeprefix("data: ") for line in sent.split("\n") if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


KINDS = answered("See.", ("add", {"a": 2}), ("edit", {"input": "x"}), ("n.go", {}), thoughts="Hm, two.")


@pytest.mark.parametrize("answer", [*ANSWERS.values(), KINDS], ids=[*ANSWERS, "kinds of tools"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_answers_validate_as_the_clients_types(call: ModelCall, answer: Any) -> None:
    dialect, whole, event = TYPES[call.dialect]
    whole.validate_json(json.dumps(dialect.whole(call, [answer])))
    streamed = asyncio.run(events(dialect, call, [answer]))
    assert streamed
    for item in streamed:
        # Anthropic's client drops pings before it looks at types; OpenAI's has no type for a custom call in a chunk.
        if item.get("type") != "ping" and '"custom"' not in json.dumps(item.get("choices")):
            event.validate_json(json.dumps(item))


def test_failures_and_counts_validate_as_the_clients_types() -> None:
    gone = ApiError(503, "the engine is gone", "engine_gone")
    broken = asyncio.run(events(responses, CALLS["responses"], [ANSWERS["words"]], gone))
    assert [item["type"] for item in broken[-2:]] == ["error", "response.failed"]
    for item in broken:
        TYPES["responses"][2].validate_json(json.dumps(item))
    TypeAdapter(MessageTokensCount).validate_python(messages.counted(7))
    TypeAdapter(ErrorResponse).validate_python(messages.error(gone))
