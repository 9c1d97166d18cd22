"""Answers in three dialects, whole and streamed: golden tables, and the events folded back are the whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from folded import FOLDS, events_of
from scripted_gateway import CREATED, answered, pieces_of

from rl_agents.gateway.calls import Delta, ModelAnswer, ModelCall, Piece, Start
from rl_agents.gateway.dialects import (
    DIALECTS,
    chat_completions,
    dialect_of,
    messages,
    model_body,
    models_body,
    responses,
)
from rl_agents.gateway.dialects.stream import primed
from rl_agents.web.errors import ApiError, bad_request, overloaded

CALLING = answered("Let me see.", ("add", {"a": 2}), ("add", {"é": [1]}), thoughts="Hm, two.")
USAGE_CHAT = {
    "prompt_tokens": 11,
    "completion_tokens": 11,
    "total_tokens": 22,
    "prompt_tokens_details": {"cached_tokens": 0},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
BUSY = overloaded()


def call_of(dialect: ModuleType, **fields: Any) -> ModelCall:
    asked = [{"role": "user", "content": "hi"}]
    return dialect.read({"model": "m", "messages": asked, "input": asked, "max_tokens": 9, **fields})


async def collect(events: AsyncIterator[bytes]) -> bytes:
    return b"".join([event async for event in events])


def streamed(dialect: ModuleType, call: ModelCall, pieces: AsyncIterator[Piece]) -> list[dict[str, Any]]:
    return events_of(asyncio.run(collect(dialect.events(call, pieces))))


async def given(*pieces: Piece | ApiError) -> AsyncIterator[Piece]:
    for piece in pieces:
        if isinstance(piece, ApiError):
            raise piece
        yield piece


def test_a_whole_chat_completion() -> None:
    call = call_of(chat_completions)
    body = chat_completions.whole(call, [CALLING, answered("Five.", finish="length")])
    arguments = ['{"a": 2}', json.dumps({"é": [1]})]
    assert body == {
        "id": "chatcmpl-a1",
        "object": "chat.completion",
        "created": CREATED,
        "model": "m",
        "system_fingerprint": "policy-v3",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Let me see.",
                    "refusal": None,
                    "reasoning_content": "Hm, two.",
                    "tool_calls": [
                        {"id": f"call_{n}", "type": "function", "function": {"name": "add", "arguments": text}}
                        for n, text in enumerate(arguments)
                    ],
                },
                "logprobs": None,
                "finish_reason": "tool_calls",
            },
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Five.", "refusal": None},
                "logprobs": None,
                "finish_reason": "length",
            },
        ],
        "usage": {**USAGE_CHAT, "completion_tokens": 12, "total_tokens": 23},
    }


def test_a_call_without_words_has_no_content_and_an_empty_answer_has() -> None:
    call = call_of(chat_completions)
    bodies = [chat_completions.whole(call, [answer]) for answer in (answered("", ("f", {})), answered(""))]
    assert [body["choices"][0]["message"]["content"] for body in bodies] == [None, ""]


def test_a_whole_response() -> None:
    tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
    notes = {"metadata": {"who": "me"}, "previous_response_id": "resp_a0", "tool_choice": "required"}
    body = responses.whole(call_of(responses, tools=tools, max_output_tokens=9, **notes), [CALLING])
    summary = [{"type": "summary_text", "text": "Hm, two."}]
    part = {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}
    assert body["output"] == [
        {"id": "rs_a1", "type": "reasoning", "summary": summary, "status": "completed"},
        {"id": "msg_a1", "type": "message", "role": "assistant", "status": "completed", "content": [part]},
        *(
            {
                "id": f"fc_a1_{n}",
                "type": "function_call",
                "call_id": called.id,
                "name": "add",
                "arguments": called.arguments,
                "status": "completed",
            }
            for n, called in enumerate(CALLING.tool_calls)
        ),
    ]
    assert (body["id"], body["previous_response_id"], body["status"]) == ("resp_a1", "resp_a0", "completed")
    assert body["usage"] == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 11,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 22,
    }
    about = {"type": "function", "name": "add", "description": "", "parameters": {"type": "object"}, "strict": False}
    assert body["tools"] == [about] and body["metadata"] == {"who": "me"} and body["tool_choice"] == "required"
    assert body["incomplete_details"] is None and body["error"] is None and body["max_output_tokens"] == 9
    assert body["temperature"] is None  # how it was sampled is the run's matter


def test_a_response_that_was_cut_is_incomplete() -> None:
    body = responses.whole(call_of(responses), [answered("Fi", finish="length")])
    assert body["status"] == "incomplete" and body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["output"][0]["status"] == "incomplete"


def test_a_whole_message() -> None:
    body = messages.whole(call_of(messages), [CALLING])
    signature = body["content"][0].pop("signature")
    assert signature and isinstance(signature, str)  # clients drop thoughts without one
    assert body == {
        "id": "msg_a1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [
            {"type": "thinking", "thinking": "Hm, two."},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "call_0", "name": "add", "input": {"a": 2}},
            {"type": "tool_use", "id": "call_1", "name": "add", "input": {"é": [1]}},
        ],
        "stop_reason": "tool_use",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 11,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 11,
        },
    }


@pytest.mark.parametrize(
    ("answer", "reason", "stop"),
    [
        (answered("Five."), "end_turn", None),
        (answered("Fi", finish="length"), "max_tokens", None),
        (answered("Five", stop="."), "stop_sequence", "."),
        (answered("", ("f", {})), "tool_use", None),
        (answered("", ("f", {}), stop="."), "tool_use", None),
    ],
)
def test_a_messages_end_has_its_reason(answer: ModelAnswer, reason: str, stop: str | None) -> None:
    body = messages.whole(call_of(messages), [answer])
    assert (body["stop_reason"], body["stop_sequence"]) == (reason, stop)


ANSWERS = {
    "words": [answered("Five is the sum.")],
    "calls": [CALLING],
    "calls only": [answered("", ("add", {"a": 2}))],
    "thoughts and words": [answered("Five.", thoughts="Two and three.")],
    "thoughts and a call": [answered("", ("f", {}), thoughts="Hm.")],
    "thoughts only": [answered("", thoughts="Two and three and", finish="length")],
    "nothing": [answered("")],
    "cut": [answered("Five is", finish="length")],
    "stopped": [answered("Five is", stop="the")],
    "other scripts": [answered("Fünf – 五 🙂\n\ndata: x\u2028y")],
}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.PATH)
@pytest.mark.parametrize("answers", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("how", ["start", "no start", "answer only"])
def test_streamed_is_whole(dialect: ModuleType, answers: list[ModelAnswer], how: str) -> None:
    call = call_of(dialect, stream=True, stream_options={"include_usage": True}, tools=[])
    pieces: AsyncIterator[Piece] = given(*answers) if how == "answer only" else pieces_of(answers)
    found = streamed(dialect, call, without_start(pieces) if how == "no start" else pieces)
    assert FOLDS[call.dialect](found) == dialect.whole(call, answers)


async def without_start(pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
    async for piece in pieces:
        if not isinstance(piece, Start):
            yield piece


def test_several_choices_stream_side_by_side() -> None:
    call = call_of(chat_completions, n=3, stream_options={"include_usage": True})
    answers = [replace(answered(text), index=index) for index, text in enumerate(("One here.", "", "Three are here."))]
    found = streamed(chat_completions, call, pieces_of(answers))
    assert FOLDS["chat_completions"](found) == chat_completions.whole(call, answers)
    order = [choice["index"] for event in found for choice in event["choices"]]
    assert order != sorted(order)


def test_chat_chunks_in_their_order() -> None:
    call = call_of(chat_completions)
    found = streamed(chat_completions, call, given(Start("a1", CREATED), Delta(0, "", "Hm."), Delta(0, "Yes"), CALLING))
    deltas = [event["choices"][0]["delta"] for event in found]
    kinds = [tuple(delta) for delta in deltas]
    calls = [("tool_calls",)] * 2
    assert kinds == [("role", "content"), ("reasoning_content",), ("content",), *calls, ()]
    assert [event["choices"][0]["finish_reason"] for event in found] == [None] * 5 + ["tool_calls"]
    assert all("usage" not in event for event in found)  # nobody asked


def test_response_events_in_their_order() -> None:
    found = streamed(responses, call_of(responses), pieces_of([answered("Five.", ("f", {}), thoughts="Hm.")]))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"].removeprefix("response.") for event in found] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [event["output_index"] for event in found if "output_index" in event] == [0] * 6 + [1] * 6 + [2] * 4
    assert {event["item_id"] for event in found if "item_id" in event} == {"rs_a1", "msg_a1", "fc_a1_0"}


def test_message_events_in_their_order() -> None:
    found = streamed(messages, call_of(messages), pieces_of([answered("Five.", ("f", {"a": 1}), thoughts="Hm.")]))
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    thinking = [block[0], block[1], block[1], block[2]]  # its signature is a delta of its own
    assert [event["type"] for event in found] == [
        "message_start", "ping", *thinking, *block, *block, "message_delta", "message_stop",
    ]  # fmt: skip
    assert found[0]["message"]["usage"]["input_tokens"] == 11
    blocks = [event["content_block"] for event in found if "content_block" in event]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]
    assert blocks[2]["input"] == {} and not blocks[1]["text"] and not blocks[0]["thinking"]
    assert [event["index"] for event in found if "index" in event] == [0] * 4 + [1] * 3 + [2] * 3


def failing(dialect: ModuleType, *pieces: Piece | ApiError) -> list[dict[str, Any]]:
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


def test_one_answer_of_two_is_a_failure() -> None:
    found = streamed(chat_completions, call_of(chat_completions, n=2), given(answered("Five.")))
    assert found[-1]["error"]["code"] == "answer_broken_off"


def test_what_came_before_the_start_is_not_lost() -> None:
    """Choice 1 is under way when choice 0 ends, which is the first that says the response's id."""
    answers = [answered("One."), replace(answered("Two."), index=1)]
    pieces = given(Delta(1, "Tw"), answers[0], Delta(1, "o"), answers[1])
    call = call_of(chat_completions, n=2, stream_options={"include_usage": True})
    assert FOLDS["chat_completions"](streamed(chat_completions, call, pieces)) == chat_completions.whole(call, answers)


def test_a_refusal_before_the_first_piece_is_raised() -> None:
    with pytest.raises(ApiError, match="busy"):
        asyncio.run(primed(given(BUSY)))

    async def rest() -> list[Piece]:
        return [piece async for piece in await primed(given(Start("a1", CREATED), Delta(0, "x")))]

    assert asyncio.run(rest()) == [Start("a1", CREATED), Delta(0, "x")]


def test_a_client_that_hangs_up_ends_the_sampling() -> None:
    ended = []

    async def sampling() -> AsyncIterator[Piece]:
        try:
            yield Start("a1", CREATED)
            while True:
                yield Delta(0, "x")
        finally:
            ended.append(True)

    async def hang_up(dialect: ModuleType) -> None:
        events = dialect.events(call_of(dialect), await primed(sampling()))
        for _ in range(6):
            await anext(events)
        await events.aclose()
        assert ended.pop()  # at once, and not when the loop closes

    for dialect in DIALECTS.values():
        asyncio.run(hang_up(dialect))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (409, "invalid_request_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropics_names_of_errors(status: int, kind: str) -> None:
    body = messages.error(ApiError(status, "why", "word"))
    assert body == {"type": "error", "error": {"type": kind, "message": "why"}}


def test_errors_are_written_in_the_paths_dialect() -> None:
    assert dialect_of("/s/x/v1/messages/count_tokens", {}) is messages
    assert dialect_of("/s/x/v1/responses/resp_1", {}) is responses
    assert dialect_of("/v1/chat/completions", {"anthropic-version": "2023-06-01"}) is chat_completions
    assert dialect_of("/v1/models", {"anthropic-version": "2023-06-01"}) is messages
    assert dialect_of("/v1/models", {}) is chat_completions
    problem = bad_request("no", "model")
    assert chat_completions.error(problem) == responses.error(problem) == problem.body()


def test_models_have_the_fields_of_both_companies() -> None:
    body = models_body(["a", "b"], CREATED)
    assert body["data"] == [model_body("a", CREATED), model_body("b", CREATED)]
    assert (body["object"], body["has_more"], body["first_id"], body["last_id"]) == ("list", False, "a", "b")
    assert body["data"][0]["created_at"] == "2023-11-14T22:13:20Z" and body["data"][0]["created"] == CREATED
    assert models_body([], CREATED)["first_id"] is None
