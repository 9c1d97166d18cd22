"""The real SDKs read what the dialects write: whole, streamed, synchronous and asynchronous, and when it goes wrong."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from scripted_gateway import ANSWERS, CREATED, Script, scripted

from rl_agents.gateway.calls import ModelAnswer
from rl_agents.web.errors import ApiError, bad_request

pytestmark = pytest.mark.servers

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": False, "required": ["a"]}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA, "strict": True}}]
FLAT_TOOLS: Any = [{"type": "function", "name": "add", "parameters": SCHEMA, "strict": True}]
CLAUDE_TOOLS: Any = [{"name": "add", "input_schema": SCHEMA}]
ASKED: Any = [{"role": "user", "content": "2 + 3?"}]
CASES = pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)


SCRIPT = Script()


@pytest.fixture
def script() -> Script:
    SCRIPT.calls.clear()
    return SCRIPT


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with scripted(SCRIPT) as base:
        yield base


@pytest.fixture(scope="module")
def oai(base: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def claude(base: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=base, api_key="none", max_retries=0) as client:
        yield client


def plain(model: Any) -> Any:
    """What an SDK read, without what it added itself."""
    return json.loads(model.to_json(exclude_unset=False, exclude_none=True))


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(model="m", messages=ASKED, **fields)


@CASES
def test_chat_streamed_equals_whole(script: Script, oai: openai.OpenAI, answer: ModelAnswer) -> None:
    script.answers = [answer]
    tools = CHAT_TOOLS if answer.tool_calls else openai.omit
    whole = chat(oai, tools=tools)
    script.calls.clear()
    with oai.chat.completions.stream(
        model="m", messages=ASKED, tools=tools, stream_options={"include_usage": True}
    ) as stream:
        if answer.finish == "length":  # the helper raises what it has added up
            with pytest.raises(openai.LengthFinishReasonError) as cut:
                stream.get_final_completion()
            streamed = cut.value.completion
        else:
            streamed = stream.get_final_completion()
    assert without_parsed(plain(streamed)) == plain(whole)
    message = whole.choices[0].message
    assert (message.content or "") == answer.content
    assert getattr(message, "reasoning_content", "") == answer.thoughts
    calls = [(called.function.name, called.function.arguments) for called in message.tool_calls or ()]
    assert calls == [(called.name, called.arguments) for called in answer.tool_calls]
    assert whole.choices[0].finish_reason == answer.finish and whole.usage.completion_tokens == answer.completion_tokens


def without_parsed(data: Any) -> Any:
    """The streaming helper parses arguments and adds what it read, and an index that only streams have."""
    for choice in data["choices"]:
        for called in choice["message"].get("tool_calls", ()):
            called["function"].pop("parsed_arguments", None)
            called.pop("index", None)
    return data


def test_several_choices_and_usage_when_asked(script: Script, oai: openai.OpenAI) -> None:
    script.answers = [ANSWERS["words"]]
    whole = chat(oai, n=2)
    assert [choice.message.content for choice in whole.choices] == ["Five is the sum.", "Five is the sum.!"]
    texts = ["", ""]
    for chunk in chat(oai, n=2, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices] and script.calls[-1].count == 2
    script.answers = [ANSWERS["words"]]
    assert all(chunk.usage is None and chunk.choices for chunk in chat(oai, stream=True))
    *chunks, last = chat(oai, stream=True, stream_options={"include_usage": True})
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == [] and last.usage.total_tokens == 15
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in (*chunks, last)}) == 1
    assert {chunk.system_fingerprint for chunk in (*chunks, last)} == {"policy-v3"}


@CASES
def test_responses_streamed_equals_whole(script: Script, oai: openai.OpenAI, answer: ModelAnswer) -> None:
    script.answers = [answer]
    tools = FLAT_TOOLS if answer.tool_calls else openai.omit
    asked: dict[str, Any] = {"model": "m", "input": ASKED, "tools": tools, "instructions": "Be brief."}
    whole = oai.responses.create(**asked)
    script.calls.clear()
    with oai.responses.stream(**asked) as stream:
        *_, last = stream
    assert last.type == f"response.{'incomplete' if answer.finish == 'length' else 'completed'}"
    streamed = plain(last.response)
    for item in streamed["output"]:
        item.pop("parsed_arguments", None)
    assert streamed == plain(whole)
    assert whole.output_text == answer.content and whole.instructions == "Be brief."
    calls = [(item.name, item.arguments, item.call_id) for item in whole.output if item.type == "function_call"]
    assert calls == [(called.name, called.arguments, called.id) for called in answer.tool_calls]
    thoughts = [part.text for item in whole.output if item.type == "reasoning" for part in item.summary]
    assert "".join(thoughts) == answer.thoughts
    assert whole.usage is not None and whole.usage.output_tokens == answer.completion_tokens


@CASES
def test_messages_streamed_equals_whole(script: Script, claude: anthropic.Anthropic, answer: ModelAnswer) -> None:
    script.answers = [answer]
    tools = CLAUDE_TOOLS if answer.tool_calls else anthropic.omit
    asked: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": ASKED, "tools": tools, "system": "Be brief."}
    whole = claude.messages.create(**asked)
    script.calls.clear()
    with claude.messages.stream(**asked) as stream:
        streamed = stream.get_final_message()
    assert plain(streamed) == plain(whole)
    assert "".join(block.text for block in whole.content if block.type == "text") == answer.content
    assert "".join(block.thinking for block in whole.content if block.type == "thinking") == answer.thoughts
    calls = [(block.id, block.name, block.input) for block in whole.content if block.type == "tool_use"]
    assert calls == [(called.id, called.name, json.loads(called.arguments)) for called in answer.tool_calls]
    assert whole.usage.output_tokens == answer.completion_tokens and whole.usage.input_tokens == 11
    assert not answer.stop or (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", answer.stop)
    assert script.calls[0].messages[0] == {"role": "system", "content": "Be brief."}


def test_both_sdks_list_models(oai: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    assert [model.id for model in oai.models.list()] == ["policy"] and oai.models.retrieve("policy").created == CREATED
    found = claude.models.list()
    assert [model.id for model in found] == ["policy"] and claude.models.retrieve("policy").display_name == "policy"
    assert found.data[0].created_at.year == 2023


STATUSES = [
    (bad_request("model: no", "model"), openai.BadRequestError, anthropic.BadRequestError),
    (ApiError(401, "no key", "invalid_api_key"), openai.AuthenticationError, anthropic.AuthenticationError),
    (ApiError(413, "too large", "body_too_large"), openai.APIStatusError, anthropic.RequestTooLargeError),
    (ApiError(429, "busy", "overloaded"), openai.RateLimitError, anthropic.RateLimitError),
    (ApiError(503, "closing", "unavailable"), openai.InternalServerError, anthropic.InternalServerError),
]


@pytest.mark.parametrize(("problem", "theirs", "others"), STATUSES, ids=[str(row[0].status) for row in STATUSES])
@pytest.mark.parametrize("stream", [False, True])
def test_refusals_are_the_sdks_own_exceptions(
    script: Script, oai: openai.OpenAI, claude: anthropic.Anthropic, problem: ApiError, theirs: Any, others: Any,
    stream: bool,
) -> None:  # fmt: skip
    script.answers = [problem]
    with pytest.raises(theirs) as chat_refused:
        chat(oai, stream=stream)
    with pytest.raises(theirs) as response_refused:
        oai.responses.create(model="m", input="x", stream=stream)
    for refused in (chat_refused.value, response_refused.value):
        assert (refused.status_code, refused.code, refused.param) == (problem.status, problem.code, problem.param)
        assert refused.body["message"] == problem.message  # type: ignore[index]
    with pytest.raises(others) as message_refused:
        claude.messages.create(model="m", max_tokens=9, messages=ASKED, stream=stream)
    assert message_refused.value.status_code == problem.status
    assert message_refused.value.body["error"]["message"] == problem.message  # type: ignore[index]
