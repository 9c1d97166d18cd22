"""Bodies that clients get wrong: always a 4xx with one sentence, which holds no folder of the server."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from rl_agents.serving.protocol import ChatRequest, CheckpointRequest, SessionRequest, StepRequest, parse
from rl_agents.web.errors import ApiError, public

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
KINDS = (ChatRequest, SessionRequest, StepRequest, CheckpointRequest)

CHATS: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": 3}, "model"),
    ({"model": ["m"]}, "model"),
    ({"messages": None}, "a list of messages is needed"),
    ({"messages": "hi"}, "a list of messages is needed"),
    ({"messages": {}}, "a list of messages is needed"),
    ({"messages": [None]}, "message 0"),
    ({"messages": [[]]}, "message 0"),
    ({"messages": ["hi"]}, "message 0"),
    ({"messages": [{}]}, "message 0"),
    ({"messages": [{"role": 3, "content": "x"}]}, "message 0"),
    ({"messages": [{"role": "user"}]}, "message 0"),
    ({"messages": [{"role": "user", "content": 3}]}, "message 0"),
    ({"messages": [{"role": "user", "content": [3]}]}, "message 0"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "message 0"),
    ({"messages": [{"role": "tool", "content": []}, {"role": "x", "content": ""}]}, "message"),
    ({"messages": [CHAT["messages"][0], {"role": "assistant", "tool_calls": 3}]}, "message 1"),
    ({"messages": [CHAT["messages"][0], {"role": "assistant", "tool_calls": [3]}]}, "message 1"),
    ({"messages": [{"role": "user", "content": "x"}] * 1025}, "at most 1024 items"),
    ({"tools": 3}, "tools"),
    ({"tools": [3]}, "tools"),
    ({"tools": [{}]}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 3}}]}, "tools"),
    ({"tools": [{"type": "retrieval"}]}, "tools"),
    ({"tools": [{"type": "function", "function": {"name": "a"}}] * 129}, "129 tools, 128 are allowed"),
    ({"tool_choice": {"type": "function"}}, "tool_choice"),
    ({"parallel_tool_calls": False}, "parallel_tool_calls"),
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
    ({"user": 3}, "user"),
    ({"functions": []}, "unknown field 'functions'"),
    ({"": 1}, "unknown field ''"),
    ({"MODEL": 1}, "unknown field 'MODEL': did you mean 'model'?"),
    ({"stream_options": {"A\n": 1}}, "unknown field 'stream_options.A'"),
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
    (b'{"model": 1e999}', ""),
    (b"\x00", "not JSON"),
    (b"\xff\xfe{\x00", "not UTF-8"),
    (b"[" * 100_000, ""),
    (b'{"a": "\\ud83d"}', "lone surrogate"),
]


def refusal(kind: Any, body: bytes) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(kind, body)
    assert 400 <= caught.value.status < 500 and "\n" not in caught.value.message and caught.value.body()
    return caught.value


ROWS = [
    *((ChatRequest, json.dumps({**CHAT, **fields}).encode(), words) for fields, words in CHATS),
    *((SessionRequest, json.dumps(fields).encode(), words) for fields, words in SESSIONS),
    *((kind, json.dumps(fields).encode(), words) for kind, fields, words in OTHERS),
    *((ChatRequest, body, words) for body, words in BODIES),
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
    good = {kind: [name for name in kind.model_fields] for kind in KINDS}
    for _ in range(3000):
        kind = rng.choice(KINDS)
        fields = {**(CHAT if kind is ChatRequest else {})}
        for _ in range(rng.randrange(1, 4)):
            fields[rng.choice([*good[kind], "x", "messages"])] = rng.choice(VALUES)
        body = bytearray(json.dumps(fields).encode())
        if rng.random() < 0.3 and body:
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            parse(kind, bytes(body))
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
