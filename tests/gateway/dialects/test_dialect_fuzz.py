"""Whatever JSON comes: a call or a refusal with one line, never anything else."""

import asyncio
import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_gateway import answered, pieces_of

from rl_agents.chat.messages import ROLES
from rl_agents.gateway.calls import ModelCall
from rl_agents.gateway.dialects import DIALECTS, error_body, messages
from rl_agents.gateway.dialects.stream import events
from rl_agents.serving.request_params import read_params
from rl_agents.web.errors import ApiError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)
NAMES = (
    "model messages input instructions system tools max_tokens max_completion_tokens max_output_tokens stream n stop "
    "stop_sequences stream_options previous_response_id tool_choice text metadata functions background conversation x"
)
TYPES = (
    "text input_text output_text refusal image_url tool_use tool_result thinking redacted_thinking message reasoning "
    "reasoning_text summary_text function_call function_call_output item_reference function custom web_search object "
    "document search_result compaction"
)
KEYS = (
    "role content type text tool_calls tool_call_id id call_id name arguments output summary function parameters input "
    "input_schema tool_use_id is_error thinking reasoning_content refusal description properties $schema $ref strict "
    "source data"
)


def near(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with the keys of real ones, and values that are often right."""
    values = inner | JSON
    words = st.sampled_from([*TYPES.split(), *ROLES, '{"a": 1}', "{", "c1", "http://json-schema.org/draft-07/schema#"])
    return st.lists(values, max_size=4) | st.dictionaries(st.sampled_from(KEYS.split()), values | words, max_size=6)


NEAR = st.recursive(SCALARS | st.sampled_from([*TYPES.split(), *ROLES]), near, max_leaves=12)
GOOD: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "input": "x", "max_tokens": 5}
BODIES = JSON | st.dictionaries(st.sampled_from(NAMES.split()), NEAR | JSON, max_size=8).map(
    lambda fields: {**GOOD, **fields}
)
LISTS = st.tuples(st.sampled_from(("messages", "input", "tools", "system")), st.lists(NEAR, max_size=4))


def check(dialect: ModuleType, body: Any) -> None:
    try:
        call = dialect.read(body)
    except ApiError as error:
        assert error.status == 400 and error.message and "\n" not in error.message and len(error.message) < 500
        assert not isinstance(body, dict) or error.param in error.message
        assert json.loads(json.dumps(error_body(error, dialect.PATH, {})))["error"]["message"] == error.message
        return
    assert isinstance(call, ModelCall)
    try:
        read_params(call)
    except ApiError as error:
        assert error.status == 400 and error.message and "\n" not in error.message
    if dialect is messages:
        messages.read_count(body)  # asks for less than a call
    assert all(message["role"] in ROLES and isinstance(message["content"], str) for message in call.messages)
    answer = answered("Five.", ("f", {}), thoughts="Hm.")
    assert json.dumps(dialect.whole(call, [answer] * call.count))
    assert asyncio.run(stream(dialect, call))
    assert all(count > 0 and "\n" not in name for name, count in call.ignored.items())


async def stream(dialect: ModuleType, call: ModelCall) -> int:
    answers = [answered("Five.")]
    if call.count > 1:
        return 1
    return sum([len(event) async for event in events(dialect.Writer(call), pieces_of(answers), call.count)])


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.PATH)
@settings(max_examples=40, deadline=None)
@given(body=BODIES)
def test_any_body_is_a_call_or_a_refusal(dialect: ModuleType, body: Any) -> None:
    check(dialect, body)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=lambda dialect: dialect.PATH)
@settings(max_examples=40, deadline=None)
@given(field=LISTS)
def test_any_list_is_a_call_or_a_refusal(dialect: ModuleType, field: tuple[str, list[Any]]) -> None:
    check(dialect, {**GOOD, field[0]: field[1]})
