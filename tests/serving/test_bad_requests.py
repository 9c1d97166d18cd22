"""Bodies that clients get wrong: always a 4xx with one sentence, which holds no folder of the server."""

import json
from typing import Any

import pytest

from rl_agents.gateway.dialects import chat_completions, messages, responses
from rl_agents.serving.request_params import read_params
from rl_agents.serving.service import CheckpointRequest
from rl_agents.serving.sessions import SessionRequest, StepRequest
from rl_agents.web.bodies import json_object, read_body
from rl_agents.web.errors import ApiError, public

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def form(schema: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


#: Fields of a chat request, and words of the refusal: of the field's name, or of ours.
CHATS: list[tuple[dict[str, Any], str]] = [
    *(({"model": value}, "model") for value in (None, 3, "")),
    *(({"messages": value}, "messages") for value in (None, "hi", [])),
    ({"messages": [{"role": "user", "content": [3]}]}, "messages[0]"),
    ({"messages": [CHAT["messages"][0], {"role": "assistant", "tool_calls": [3]}]}, "messages[1]"),
    *(({"tools": value}, "tools") for value in (3, [3], [{}], [{"type": "function"}])),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"parallel_tool_calls": 0}, "parallel_tool_calls"),
    ({"tool_choice": "required"}, "a call is required and no tools are offered"),
    ({"tool_choice": "requird"}, "tool_choice: auto, none, required or one function's name is needed"),
    ({"tools": [{"function": {"name": "add"}}], "tool_choice": {"type": "tool", "name": "ad"}}, "'add'?"),
    *(({"max_tokens": value}, "max_tokens") for value in (0, "5", 1.5, True)),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    *(({"temperature": value}, "temperature") for value in (-0.1, 3, True, [1])),
    *(({"top_p": value}, "top_p") for value in (0, 1.1)),
    *(({"n": value}, "n: ") for value in (0, 129, "2", True)),
    *(({"stop": value}, "stop") for value in (3, [3], [""], ["x" * 257], ["x"] * 65, {"a": "b"})),
    *(({"seed": value}, "seed") for value in ("x", 1.5, 2**63)),
    *(({"stream": value}, "stream") for value in ("yes", 1)),
    ({"stream_options": []}, "stream_options"),
    ({"logprobs": 1}, "logprobs"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "text, json_object and json_schema are served"),
    ({"response_format": {"type": "json_schema"}}, "response_format: a JSON schema is needed"),
    (form({"type": 3}), "is no JSON schema"),
    (form({"not": {}}), "'not' in a JSON schema"),
    (form({**SCHEMA, "required": ["a", "b"]}), "'b' is required and not among the properties"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs: only with logprobs=true"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": "0"}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    *(({"logit_bias": value}, "logit_bias") for value in ({"x": 1}, {"3": 101}, {str(n): 1 for n in range(301)})),
]

ASKED: dict[str, Any] = {"model": "m", "input": "hi"}
CLAUDE: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": CHAT["messages"]}
#: What the other dialects have by themselves, and the server's own bodies.
OTHERS: list[tuple[Any, dict[str, Any], str]] = [
    (responses, {"model": "m"}, "input"),
    (responses, {**ASKED, "input": 7}, "input"),
    (responses, {**ASKED, "instructions": []}, "instructions"),
    (responses, {**ASKED, "max_output_tokens": -1}, "max_output_tokens"),
    (responses, {**ASKED, "previous_response_id": 3}, "previous_response_id"),
    (responses, {**ASKED, "previous_response_id": "resp_1"}, "responses are not kept here"),
    (responses, {**ASKED, "text": {"format": {"type": "grammar"}}}, "text.format: text, json_object and json_schema"),
    (messages, {"model": "m", "messages": CHAT["messages"]}, "'max_tokens' is missing"),
    (messages, {**CLAUDE, "stop_sequences": 7}, "stop_sequences"),
    (messages, {**CLAUDE, "tool_choice": {"type": "any"}}, "a call is required and no tools are offered"),
    *((SessionRequest, {"task_id": value}, "task_id") for value in (3, "x" * 1025)),
    (SessionRequest, {"split": "dev"}, "split"),
    *((SessionRequest, {"seed": value}, "seed") for value in (-1, 2**63, True)),
    (SessionRequest, {"temperature": 2.5}, "temperature"),
    (SessionRequest, {"temprature": 1}, "did you mean 'temperature'?"),
    *((StepRequest, {"action": value}, "action") for value in (3, ["a"], "x" * 16_385)),
    (StepRequest, {"actoin": "x"}, "did you mean 'action'?"),
    *((CheckpointRequest, {"checkpoint": value}, "checkpoint") for value in (3, "x" * 4097)),
    (CheckpointRequest, {"path": "x"}, "unknown field 'path'"),
]

BODIES: list[tuple[bytes, str]] = [
    (b"null", "not a JSON object"),
    (b"3", "not a JSON object"),
    (b"{]", "not JSON"),
    (b'{"model": Infinity}', "is not JSON"),
    (b"", "not JSON"),
    (b'{"model": 1e999}', ""),
    (b"\x00", "not JSON"),
    (b"\xff\xfe{\x00", "not UTF-8"),
    (b"[" * 100_000, ""),
]


def read(kind: Any, body: bytes) -> None:
    """Read a request of a dialect, or of the server's own."""
    data = json_object(body)
    if isinstance(kind, type):
        read_body(kind, data)
    else:
        read_params(kind.read(data))


def refusal(kind: Any, body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(kind, body)
    assert 400 <= caught.value.status < 500 and "\n" not in caught.value.message and caught.value.body()
    return caught.value


ROWS = [
    *((chat_completions, json.dumps({**CHAT, **fields}).encode(), words) for fields, words in CHATS),
    *((kind, json.dumps(fields).encode(), words) for kind, fields, words in OTHERS),
    *((chat_completions, body, words) for body, words in BODIES),
]


@pytest.mark.parametrize(("kind", "body", "words"), ROWS, ids=[repr(body)[-50:] for _, body, _ in ROWS])
def test_bodies(kind: Any, body: bytes, words: str) -> None:
    assert words in refusal(kind, body).message


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("/srv/models/a/config.json: damaged", "config.json: damaged"),
        ("no 'x' in '/root/.cache/rl_agents/x.sqlite'", "no 'x' in 'x.sqlite'"),
        ("guess_numbers: env.data=/data/alfworld: no such folder", "guess_numbers: env.data=alfworld: no such folder"),
        ("judge at http://host:8000/v1/chat did not answer", "judge at http://host:8000/v1/chat did not answer"),
        ("runs/demo/checkpoints has none", "runs/demo/checkpoints has none"),
        ("0/1 of 3/4", "0/1 of 3/4"),
    ],
)
def test_answers_hold_no_folders_of_the_server(message: str, shown: str) -> None:
    assert public(message) == shown
