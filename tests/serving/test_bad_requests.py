"""Bodies that clients get wrong: always a 4xx with one sentence, which holds no folder of the server."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rl_agents.gateway.dialects import chat_completions, messages, responses
from rl_agents.serving.protocol import CheckpointRequest, SessionRequest, StepRequest, parse
from rl_agents.serving.request_params import read_wishes
from rl_agents.web.bodies import json_object
from rl_agents.web.errors import ApiError, public

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
KINDS = (SessionRequest, StepRequest, CheckpointRequest)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

CHATS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": 3}, "model"),
    ({"model": ["m"]}, "model"),
    ({"messages": None}, "a list of at least one message is needed"),
    ({"messages": "hi"}, "messages: a list is needed"),
    ({"messages": {}}, "messages: a list is needed"),
    ({"messages": [None]}, "messages[0]"),
    ({"messages": [[]]}, "messages[0]"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0]"),
    ({"messages": [{"role": 3, "content": "x"}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": [3]}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0]"),
    ({"messages": [{"role": "tool", "content": []}, {"role": "x", "content": ""}]}, "messages[1]"),
    ({"messages": [CHAT["messages"][0], {"role": "assistant", "tool_calls": 3}]}, "messages[1]"),
    ({"messages": [CHAT["messages"][0], {"role": "assistant", "tool_calls": [3]}]}, "messages[1]"),
    ({"tools": 3}, "tools"),
    ({"tools": [3]}, "tools"),
    ({"tools": [{}]}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 3}}]}, "tools"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"parallel_tool_calls": 0}, "parallel_tool_calls"),
    ({"tool_choice": "required"}, "a call is required and no tools are offered"),
    ({"tool_choice": "requird"}, "tool_choice: auto, none, required or one function's name is needed"),
    (
        {"tools": [{"function": {"name": "add"}}], "tool_choice": {"type": "function", "function": {"name": "ad"}}},
        "'add'?",
    ),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -5}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": [1]}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"n": -1}, "n"),
    ({"n": "2"}, "n"),
    ({"stop": 3}, "stop"),
    ({"stop": [3]}, "stop"),
    ({"stop": ["x" * 257]}, "a stop string has 1 to 256 characters"),
    ({"stop": {"a": "b"}}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"stream_options": []}, "stream_options"),
    ({"logprobs": 1}, "logprobs"),
    ({"frequency_penalty": "0"}, "frequency_penalty"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "xml"}}, "text, json_object and json_schema are served"),
    ({"response_format": {"type": "json_schema"}}, "response_format: a JSON schema is needed"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}}, "is no JSON schema"),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "'not' in a JSON schema"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {**SCHEMA, "required": ["a", "b"]}}}},
        "'b' is required and not among the properties",
    ),
    ({"top_logprobs": 21, "logprobs": True}, "a whole number from 0 to 20 is needed (got 21)"),
    ({"top_logprobs": 2}, "top_logprobs: only with logprobs=true"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": 2}, "min_p: a number from 0 to 1 is needed"),
    ({"presence_penalty": 3}, "a number from -2 to 2 is needed"),
    ({"repetition_penalty": 0}, "must be above 0"),
    ({"logit_bias": {"x": 1}}, "token ids with numbers from -100 to 100"),
    ({"logit_bias": {"3": 101}}, "token ids with numbers from -100 to 100"),
]

ASKED: dict[str, Any] = {"model": "m", "input": "hi"}
CLAUDE: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": CHAT["messages"]}
#: Of the other dialects, what they have by themselves.
OTHER_DIALECTS: list[tuple[Any, dict[str, Any], str]] = [
    (responses, {**ASKED, "previous_response_id": "resp_1"}, "responses are not kept here"),
    (responses, {**ASKED, "text": {"format": {"type": "grammar"}}}, "text.format: text, json_object and json_schema"),
    (messages, {**CLAUDE, "tool_choice": {"type": "any"}}, "a call is required and no tools are offered"),
]

SESSIONS: list[tuple[dict[str, Any], str]] = [
    ({"env": 3}, "env"),
    ({"env": ["a"]}, "env"),
    ({"options": []}, "options"),
    ({"options": {"a": None}}, "options"),
    ({"options": {"a": {}}}, "options"),
    ({"options": {str(n): 1 for n in range(33)}}, "at most 32 items"),
    ({"task_id": 3}, "task_id"),
    ({"task_id": "x" * 1025}, "at most 1024 characters"),
    ({"split": "dev"}, "split"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"seed": True}, "seed"),
    ({"temperature": 2.5}, "temperature"),
    ({"temprature": 1}, "did you mean 'temperature'?"),
]

OTHERS: list[tuple[Any, dict[str, Any], str]] = [
    (StepRequest, {"action": 3}, "action"),
    (StepRequest, {"action": ["a"]}, "action"),
    (StepRequest, {"action": "x" * 16_385}, "at most 16384 characters"),
    (StepRequest, {"actoin": "x"}, "did you mean 'action'?"),
    (CheckpointRequest, {"checkpoint": 3}, "checkpoint"),
    (CheckpointRequest, {"checkpoint": "x" * 4097}, "at most 4096 characters"),
    (CheckpointRequest, {"path": "x"}, "unknown field 'path'"),
]

BODIES: list[tuple[bytes, str]] = [
    (b"null", "not a JSON object"),
    (b"3", "not a JSON object"),
    (b'"model"', "not a JSON object"),
    (b"{]", "not JSON"),
    (b"{'model': 1}", "not JSON"),
    (b'{"model": Infinity}', "is not JSON"),
    (b"", "not JSON"),
    (b'{"model": 1e999}', ""),
    (b"\x00", "not JSON"),
    (b"\xff\xfe{\x00", "not UTF-8"),
    (b"[" * 100_000, ""),
]


def read(kind: Any, body: bytes) -> None:
    """Read a request of a dialect, or of the server's own."""
    if isinstance(kind, type):
        parse(kind, body)
    else:
        read_wishes(kind.read(json_object(body)))


def refusal(kind: Any, body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(kind, body)
    assert 400 <= caught.value.status < 500 and "\n" not in caught.value.message and caught.value.body()
    return caught.value


ROWS = [
    *((chat_completions, json.dumps({**CHAT, **fields}).encode(), words) for fields, words in CHATS),
    *((dialect, json.dumps(fields).encode(), words) for dialect, fields, words in OTHER_DIALECTS),
    *((SessionRequest, json.dumps(fields).encode(), words) for fields, words in SESSIONS),
    *((kind, json.dumps(fields).encode(), words) for kind, fields, words in OTHERS),
    *((chat_completions, body, words) for body, words in BODIES),
]


@pytest.mark.parametrize(("kind", "body", "words"), ROWS, ids=[repr(body)[-50:] for _, body, _ in ROWS])
def test_bodies(kind: Any, body: bytes, words: str) -> None:
    assert words in refusal(kind, body).message


VALUES: list[Any] = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\u0000",
    [],
    {},
    [[]],
    [None],
    {"a": {}},
    "x" * 5000,
    "猫",
]


def test_no_body_at_random_gets_past_as_another_error() -> None:
    rng = random.Random(0)
    good = {kind: [*kind.model_fields] for kind in KINDS}
    for dialect, own in ((chat_completions, CHAT), (responses, ASKED), (messages, CLAUDE)):
        good[dialect] = [*own, *dialect.WISHES, *dialect.NOTES, "tools", "stream", "stop", "n", "system"]
    bases = {chat_completions: CHAT, responses: ASKED, messages: CLAUDE}
    for _ in range(3000):
        kind = rng.choice([*good])
        fields = {**bases.get(kind, {})}
        for _ in range(rng.randrange(1, 4)):
            fields[rng.choice([*good[kind], "x", "messages"])] = rng.choice(VALUES)
        body = bytearray(json.dumps(fields).encode())
        if rng.random() < 0.3 and body:
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            read(kind, bytes(body))
        except ApiError as error:
            assert error.status == 400 and "\n" not in error.message, bytes(body)


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
