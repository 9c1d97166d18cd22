"""Answers in three dialects, whole and streamed; `test_dialect_clients` has what the SDKs make of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from types import ModuleType
from typing import Any

import pytest
from scripted_gateway import CREATED, answered

from rl_agents.gateway.calls import Delta, ModelCall, Start, StreamPart
from rl_agents.gateway.dialects import DIALECTS, chat_completions, messages, responses, stream
from rl_agents.web.errors import ApiError

CALLING = answered("Let me see.", ("add", {"a": 2}), ("add", {"é": [1]}), thoughts="Hm, two.")
BUSY = ApiError(429, "the server is busy; try again in a moment", "overloaded")


def call_of(dialect: ModuleType, **fields: Any) -> ModelCall:
    asked = [{"role": "user", "content": "hi"}]
    return dialect.read({"model": "m", "messages": asked, "input": asked, "max_tokens": 9, **fields})


def events_of(stream: bytes) -> list[dict[str, Any]]:
    """Split a stream into its events; a name, where there is one, equals its event's type."""
    found = []
    assert stream.isascii()
    for block in stream.decode().split("\n\n")[:-1]:
        *names, data = block.split("\n")
        assert data.startswith("data: ") and len(names) <= 1
        if data == "data: [DONE]":
            continue
        event = json.loads(data.removeprefix("data: "))
        assert not names or names[0] == f"event: {event['type']}"
        found.append(event)
    return found


async def collect(events: AsyncIterator[bytes]) -> bytes:
    return b"".join([event async for event in events])


def streamed(dialect: ModuleType, call: ModelCall, pieces: AsyncIterator[StreamPart]) -> list[dict[str, Any]]:
    return events_of(asyncio.run(collect(stream.events(dialect.Writer(call), pieces, call.count))))


async def given(*pieces: StreamPart | ApiError) -> AsyncIterator[StreamPart]:
    for piece in pieces:
        if isinstance(piece, ApiError):
            raise piece
        yield piece


def test_a_call_without_words_has_no_content_and_one_answer_of_two_is_a_failure() -> None:
    call = call_of(chat_completions)
    bodies = [chat_completions.whole(call, [answer]) for answer in (answered("", ("f", {})), answered(""))]
    assert [body["choices"][0]["message"]["content"] for body in bodies] == [None, ""]
    found = streamed(chat_completions, call_of(chat_completions, n=2), given(Start("a1", CREATED), answered("Five.")))
    assert found[-1]["error"]["code"] == "answer_broken_off"


def test_a_whole_response() -> None:
    """What the SDK's own test does not look at: what is told again of the request."""
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    notes = {"metadata": {"who": "me"}, "previous_response_id": "resp_a0", "tool_choice": "required"}
    body = responses.whole(call_of(responses, tools=tools, max_output_tokens=9, **notes), [CALLING])
    assert (body["id"], body["previous_response_id"], body["status"]) == ("resp_a1", "resp_a0", "completed")
    used = body["usage"]
    assert (used["input_tokens"], used["total_tokens"]) == (11, 22)
    assert used["output_tokens_details"] == {"reasoning_tokens": 2}
    about = {"type": "function", "name": "add", "description": "", "parameters": {"type": "object"}, "strict": False}
    assert body["tools"] == [about] and body["metadata"] == {"who": "me"} and body["tool_choice"] == "required"
    assert body["max_output_tokens"] == 9 and body["temperature"] is None  # sampling is set by the run


def failing(dialect: ModuleType, *pieces: StreamPart | ApiError) -> list[dict[str, Any]]:
    return streamed(dialect, call_of(dialect), given(*pieces))


@pytest.mark.parametrize("pieces", [(Start("a1", CREATED), Delta(0, "Fi"), BUSY), (Start("a1", CREATED), BUSY)])
def test_a_failure_in_mid_stream_is_told_in_the_dialects_form(pieces: Sequence[Any]) -> None:
    assert failing(chat_completions, *pieces)[-1] == BUSY.body()
    *_, error, failed = failing(responses, *pieces)
    assert error["type"] == "error" and error["message"] == BUSY.message and error["code"] == "overloaded"
    assert failed["type"] == "response.failed" and failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["message"] == BUSY.message and failed["response"]["id"] == "resp_a1"
    *_, last = failing(messages, *pieces)
    assert last == {"type": "error", "error": {"type": "rate_limit_error", "message": BUSY.message}}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.PATH)
def test_an_answer_that_never_comes_is_a_failure(dialect: ModuleType) -> None:
    text = json.dumps(failing(dialect, Start("a1", CREATED), Delta(0, "Fi")))
    assert "the answer broke off; send the request again" in text
    assert "message_stop" not in text and "completed" not in text.split("output_text.delta")[-1]


def test_a_client_that_hangs_up_ends_the_sampling() -> None:
    ended = []

    async def sampling() -> AsyncIterator[StreamPart]:
        try:
            yield Start("a1", CREATED)
            while True:
                yield Delta(0, "x")
        finally:
            ended.append(True)

    async def hang_up(dialect: ModuleType) -> None:
        events = stream.events(dialect.Writer(call_of(dialect)), await stream.primed(sampling()), 1)
        for _ in range(6):
            await anext(events)
        await events.aclose()
        assert ended.pop()  # at once, and not when the loop closes

    for dialect in DIALECTS.values():
        asyncio.run(hang_up(dialect))
