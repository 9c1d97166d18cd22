"""All three dialects over HTTP, with the torch engine in this process: the same answer in each one's own form."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Server
from scripted_model import CALL, MAX_TOKENS, write_model

from rl_agents.web.security import Keys, digest

ASKED = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FLAT = {"type": "function", "name": "add", "parameters": SCHEMA}
#: Path, the body that asks, the tool in the dialect's form.
RESPONSES: tuple[str, dict[str, Any], Any] = ("/v1/responses", {"input": "hello"}, FLAT)
MESSAGES: tuple[str, dict[str, Any], Any] = (
    "/v1/messages", {"messages": ASKED, "max_tokens": 20}, {"name": "add", "input_schema": SCHEMA},
)  # fmt: skip


def serve(folder: Path, said: list[str], keys: Keys | None = None) -> Server:
    write_model(folder, said)
    run = {"max_model_len": MAX_TOKENS, "max_response_tokens": 16, "env.prompt": "compact"}
    return Server(folder, keys, model_name="m", **run)


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = serve(tmp_path_factory.mktemp("models") / "thinker", ["<think>", "hello", "</think>", "dear", "world"])
    yield server
    server.close()


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = serve(tmp_path_factory.mktemp("models") / "caller", ["good", *CALL])
    yield server
    server.close()


def ask(server: Server, path: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    response = server.request("POST", path, {"model": "m", **body, **more})
    assert response.status_code == 200, response.text
    return response.json()


def test_tokens_are_counted_as_they_are_asked(caller: Server) -> None:
    body = {"messages": ASKED, "system": "good dear", "tools": [MESSAGES[2]]}
    counted = ask(caller, "/v1/messages/count_tokens", body)
    assert counted == {"input_tokens": ask(caller, "/v1/messages", {**body, "max_tokens": 1})["usage"]["input_tokens"]}
    refused = caller.request("POST", "/v1/messages/count_tokens", {"model": "m", "messages": []})
    assert refused.status_code == 400 and refused.json()["type"] == "error"


def test_lengths_stops_and_wishes_are_said_again(thinker: Server) -> None:
    cut = ask(thinker, "/v1/messages", {"messages": ASKED, "max_tokens": 4})
    assert cut["stop_reason"] == "max_tokens" and cut["usage"]["output_tokens"] == 4
    stopped = ask(thinker, *MESSAGES[:2], stop_sequences=["world"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "world")
    short = ask(thinker, *RESPONSES[:2], max_output_tokens=4, temperature=0.5, metadata={"a": "b"}, store=False)
    assert short["status"] == "incomplete" and short["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (short["temperature"], short["top_p"], short["metadata"]) == (0.5, 1.0, {"a": "b"})
    told = ask(thinker, *RESPONSES[:2], include=["message.output_text.logprobs"])
    entries = told["output"][1]["content"][0]["logprobs"]
    assert len(entries) == told["usage"]["output_tokens"] and all(entry["logprob"] <= 0 for entry in entries)


def test_anthropics_clients_bring_their_key_in_a_header_of_their_own(tmp_path: Path) -> None:
    server = serve(tmp_path / "greeter", ["hello"], keys=Keys(digest("user-key")))
    try:
        for headers, status in (({"x-api-key": "user-key"}, 200), ({"x-api-key": "wrong"}, 401), ({}, 401)):
            response = server.request("POST", "/v1/messages", {"model": "m", **MESSAGES[1]}, headers=headers)
            assert response.status_code == status
            assert status == 200 or response.json()["error"]["type"] == "authentication_error"
    finally:
        server.close()
